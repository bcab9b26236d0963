//! Keys of a wrong type: which type a key should have, by its name, and what to do about one that has another.

use std::collections::BTreeSet;

use crate::protocol::{JobTypeName, Observation};

/// So many keys are named in one message.
const SAID: usize = 3;

/// The type that workers, or poolkeeper, give a key, in words; `None` where its name does not tell. `job_type`: whose key
/// it is, where it is one of a job type's. Source: gocraft/work v0.5.1 `redis.go`.
#[must_use]
pub fn expected(job_type: Option<&JobTypeName>, key: &str) -> Option<&'static str> {
    const JOB: [(&str, &str); 4] =
        [("", "a list"), (":lock", "a string"), (":lock_info", "a hash"), (":max_concurrency", "a string")];
    const OTHER: [(&str, &str); 15] = [
        (":inprogress", "a list"),
        (":lock", "a string"),
        (":lock_info", "a hash"),
        (":max_concurrency", "a string"),
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
    let of_job = job_type.and_then(|name| {
        JOB.iter().find(|(rest, _)| key.strip_suffix(rest).is_some_and(|key| key.ends_with(&format!("jobs:{name}"))))
    });
    of_job.or_else(|| OTHER.iter().find(|(rest, _)| key.ends_with(rest))).map(|(_, expected)| *expected)
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
