//! Label selectors in the text form that a scale subresource gives in `status.selector`.
//!
//! Source: kubernetes `staging/src/k8s.io/apimachinery/pkg/labels/selector.go`.

use std::collections::BTreeSet;

use crate::reaper::pods::Labels;

/// A label selector: all of its requirements must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    In(String, BTreeSet<String>),
    NotIn(String, BTreeSet<String>),
    Exists(String),
    Absent(String),
}

/// A selector that is no selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "label selector {selector:?}: {part:?} is no requirement; write key=value, key!=value, key in (a,b), key notin (a,b), key or !key"
)]
pub struct SelectorError {
    selector: String,
    part: String,
}

impl LabelSelector {
    /// Reads a selector such as `app=mail,tier in (a,b),!legacy`.
    pub fn parse(selector: &str) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for part in split(selector) {
            let part = part.trim();
            if part.is_empty() {
                continue;
            }
            let error = || SelectorError { selector: selector.into(), part: part.into() };
            requirements.push(requirement(part).ok_or_else(error)?);
        }
        Ok(Self(requirements))
    }

    /// Whether it selects every pod, which no workload's selector does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a pod with these labels is selected.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|one| match one {
            Requirement::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Requirement::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Requirement::Exists(key) => labels.contains_key(key),
            Requirement::Absent(key) => !labels.contains_key(key),
        })
    }
}

/// Splits at the commas outside of parentheses.
fn split(selector: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0_i32, 0);
    for (at, sign) in selector.char_indices() {
        match sign {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&selector[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&selector[from..]);
    parts
}

fn requirement(part: &str) -> Option<Requirement> {
    if let Some(key) = part.strip_prefix('!') {
        return Some(Requirement::Absent(key_of(key)?));
    }
    if let Some((head, values)) = part.split_once('(') {
        let values = values.strip_suffix(')')?.split(',').map(|value| value.trim().to_string()).collect();
        let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        return match operator {
            "in" => Some(Requirement::In(key_of(key)?, values)),
            "notin" => Some(Requirement::NotIn(key_of(key)?, values)),
            _ => None,
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        return Some(Requirement::NotIn(key_of(key)?, [value.trim().to_string()].into()));
    }
    if let Some((key, value)) = part.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value).trim();
        return Some(Requirement::In(key_of(key)?, [value.to_string()].into()));
    }
    Some(Requirement::Exists(key_of(part)?))
}

fn key_of(text: &str) -> Option<String> {
    let key = text.trim();
    let legal = |sign: char| sign.is_ascii_alphanumeric() || "-_./".contains(sign);
    (!key.is_empty() && key.chars().all(legal)).then(|| key.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_as_kubernetes_does() {
        let labels: Labels = [("app", "mail"), ("tier", "b"), ("x.io/y", "")]
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .into();
        let table = [
            ("app=mail", true),
            ("app==mail", true),
            ("app=other", false),
            ("app=mail,tier in (a,b)", true),
            ("tier in (a, c)", false),
            ("tier notin (a,c),app", true),
            ("tier notin (b)", false),
            ("missing notin (b)", true),
            ("missing!=b", true),
            ("app!=mail", false),
            ("!app", false),
            ("!missing,x.io/y", true),
            ("x.io/y=", true),
            ("missing", false),
            ("", true),
        ];
        for (selector, expected) in table {
            assert_eq!(LabelSelector::parse(selector).unwrap().matches(&labels), expected, "{selector}");
        }
        assert!(LabelSelector::parse("").unwrap().is_empty());
        for bad in ["a b", "a in b", "a in (b", "=b", "!", "a within (b)"] {
            assert!(LabelSelector::parse(bad).is_err(), "{bad}");
        }
    }
}
