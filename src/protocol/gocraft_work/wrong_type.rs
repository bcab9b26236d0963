//! Keys of a wrong type: which type a key should have, by its name, and what to do about one that has another.

use std::collections::BTreeSet;

use crate::protocol::{JobTypeName, Observation};

/// So many keys are named in one message.
const SAID: usize = 3;

/// The type that workers, or poolkeeper, give a key, in words; `None` where its name does not tell. `job_type`: whose key
/// it is, where it is one of a job type's. Source: gocraft/work v0.5.1 `redis.go`.
#[must_use]
pub fn expected(job_type: Option<&JobTypeName>, key: &str) -> Option<&'static str> {
    /// What follows `jobs:<job type>`; its own list is all that is followed by nothing.
    const JOB: [(&str, &str); 4] =
        [(":inprogress", "a list"), (":lock", "a string"), (":lock_info", "a hash"), (":max_concurrency", "a string")];
    /// Keys of a namespace, whole.
    const OTHER: [(&str, &str); 11] = [
        ("scheduled", "a sorted set"),
        ("retry", "a sorted set"),
        ("worker_pools", "a set"),
        ("known_jobs", "a set"),
        ("poolkeeper:schema", "a string"),
        ("poolkeeper:reaped", "a sorted set"),
        ("poolkeeper:record", "a stream"),
        ("poolkeeper:bindings", "a hash"),
        ("poolkeeper:totals", "a hash"),
        ("poolkeeper:fences", "a hash"),
        ("poolkeeper:claims", "a hash"),
    ];
    let told = |table: &[(&str, &'static str)], rest: &str| {
        table.iter().find(|(end, _)| rest.ends_with(end)).map(|(_, expected)| *expected)
    };
    let is_list = |name: &JobTypeName| key == format!("jobs:{name}") || key.ends_with(&format!(":jobs:{name}"));
    if job_type.is_some_and(is_list) {
        return Some("a list");
    }
    if let Some((before, rest)) = key.split_once("jobs:")
        && (before.is_empty() || before.ends_with(':'))
    {
        return told(&JOB, rest).or(Some("a list"));
    }
    let whole = |(name, _): &&(&str, &str)| key == *name || key.ends_with(&format!(":{name}"));
    OTHER.iter().find(whole).map(|(_, expected)| *expected)
}

/// What is wrong with a key, and what to do.
#[must_use]
pub fn advice(job_type: Option<&JobTypeName>, key: &str) -> String {
    match expected(job_type, key) {
        Some(expected) => format!("key {key:?} in Redis should be {expected}: delete it, or rename what uses it"),
        None => format!("key {key:?} in Redis has a type that no worker gives it: delete it, or rename what uses it"),
    }
}

/// The same for each of these job types that can't be read.
pub fn spoiled<'a>(
    observation: &'a Observation,
    names: &'a BTreeSet<JobTypeName>,
) -> impl Iterator<Item = String> + 'a {
    let of = |name: &'a JobTypeName| Some(advice(Some(name), observation.job_types.get(name)?.spoiled.as_ref()?));
    names.iter().filter_map(of)
}

/// The first few of many sentences, and how many more there are.
#[must_use]
pub fn some_of(sentences: &[String]) -> String {
    let said = sentences.iter().take(SAID).cloned().collect::<Vec<_>>().join("; ");
    match sentences.len().saturating_sub(SAID) {
        0 => said,
        more => format!("{said}; and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_should_have_the_type_that_workers_give_it() {
        for (job_type, key, should_be) in [
            (Some("a"), "work:jobs:a", Some("a list")),
            (Some("a"), "work:jobs:a:lock", Some("a string")),
            (Some("a"), "work:jobs:a:lock_info", Some("a hash")),
            (Some("a"), "work:jobs:a:max_concurrency", Some("a string")),
            (Some("a"), "work:jobs:a:pool:inprogress", Some("a list")),
            (Some("a:lock"), "work:jobs:a:lock", Some("a list")),
            (Some("retry"), "work:jobs:retry", Some("a list")),
            (None, "work:jobs:a:lock", Some("a string")),
            (None, "work:jobs:a", Some("a list")),
            (None, "work:jobs:email_retry", Some("a list")),
            (None, "jobs:a:pool:inprogress", Some("a list")),
            (None, "retry", Some("a sorted set")),
            (None, "work:known_jobs", Some("a set")),
            (None, "work:email_retry", None),
            (None, "work:retry", Some("a sorted set")),
            (None, "work:scheduled", Some("a sorted set")),
            (None, "work:worker_pools", Some("a set")),
            (None, "work:poolkeeper:fences", Some("a hash")),
            (None, "work:other", None),
        ] {
            assert_eq!(expected(job_type.map(JobTypeName::from).as_ref(), key), should_be, "{key}");
        }
        assert!(
            advice(None, "work:retry").starts_with(r#"key "work:retry" in Redis should be a sorted set: delete it"#)
        );
        assert!(advice(None, "work:other").contains("work:other"));
    }
}
