//! The keys of gocraft/work and our own, within one namespace.
//!
//! Source: gocraft/work v0.5.1 `redis.go`. The namespace is kept exactly, braces included; one `:` is added only where it
//! does not already end in one, and an empty namespace gives no prefix at all. Our own keys are below `poolkeeper:`.

use crate::protocol::{JobTypeName, PoolId, text};

/// The namespace of a gocraft/work program, as given to its `NewWorkerPool`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Namespace {
    prefix: String,
}

type Key = Vec<u8>;

impl Namespace {
    /// A namespace as the workers are given it.
    #[must_use]
    pub fn new(namespace: &str) -> Self {
        let colon = if namespace.is_empty() || namespace.ends_with(':') { "" } else { ":" };
        Self { prefix: format!("{namespace}{colon}") }
    }

    /// What all keys begin with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    fn key(&self, rest: &str) -> Key {
        [self.prefix.as_bytes(), &text::to_bytes(rest)].concat()
    }

    fn job(&self, job_type: &JobTypeName, rest: &str) -> Key {
        self.key(&format!("jobs:{job_type}{rest}"))
    }

    /// Waiting jobs (list).
    #[must_use]
    pub fn list(&self, job_type: &JobTypeName) -> Key {
        self.job(job_type, "")
    }

    /// Jobs that one pool runs (list).
    #[must_use]
    pub fn in_progress(&self, job_type: &JobTypeName, pool: &PoolId) -> Key {
        self.job(job_type, &format!(":{pool}:inprogress"))
    }

    /// Lock count (integer).
    #[must_use]
    pub fn lock(&self, job_type: &JobTypeName) -> Key {
        self.job(job_type, ":lock")
    }

    /// Lock count by pool (hash).
    #[must_use]
    pub fn lock_info(&self, job_type: &JobTypeName) -> Key {
        self.job(job_type, ":lock_info")
    }

    /// Max concurrency (integer).
    #[must_use]
    pub fn max_concurrency(&self, job_type: &JobTypeName) -> Key {
        self.job(job_type, ":max_concurrency")
    }

    /// Present while the type is paused (any value).
    #[must_use]
    pub fn paused(&self, job_type: &JobTypeName) -> Key {
        self.job(job_type, ":paused")
    }

    /// All job types (set).
    #[must_use]
    pub fn known_jobs(&self) -> Key {
        self.key("known_jobs")
    }

    /// All pools (set).
    #[must_use]
    pub fn worker_pools(&self) -> Key {
        self.key("worker_pools")
    }

    /// Jobs that are to run later (sorted set, score: epoch seconds).
    #[must_use]
    pub fn scheduled(&self) -> Key {
        self.key("scheduled")
    }

    /// Jobs that failed and are to run again (sorted set, score: epoch seconds).
    #[must_use]
    pub fn retry(&self) -> Key {
        self.key("retry")
    }

    /// What a pool last said (hash).
    #[must_use]
    pub fn heartbeat(&self, pool: &PoolId) -> Key {
        self.key(&format!("worker_pools:{pool}"))
    }

    /// Version of our own keys (string).
    #[must_use]
    pub fn schema(&self) -> Key {
        self.key("poolkeeper:schema")
    }

    /// Which container runs a pool (hash, pool -> JSON).
    #[must_use]
    pub fn bindings(&self) -> Key {
        self.key("poolkeeper:bindings")
    }

    /// Pools reaped within a day (sorted set, score: Redis's clock in seconds).
    #[must_use]
    pub fn reaped(&self) -> Key {
        self.key("poolkeeper:reaped")
    }

    /// Who may write (hash, resource -> uid, generation, held, retired uids).
    #[must_use]
    pub fn fences(&self) -> Key {
        self.key("poolkeeper:fences")
    }

    /// Who manages what (hash, cluster/namespace/name -> JSON).
    #[must_use]
    pub fn claims(&self) -> Key {
        self.key("poolkeeper:claims")
    }

    /// What was done (stream, 1,000 entries).
    #[must_use]
    pub fn record(&self) -> Key {
        self.key("poolkeeper:record")
    }

    /// Counters (hash).
    #[must_use]
    pub fn totals(&self) -> Key {
        self.key("poolkeeper:totals")
    }

    /// The glob pattern of all in-progress lists.
    #[must_use]
    pub fn in_progress_pattern(&self) -> String {
        format!("{}jobs:*:inprogress", glob_escaped(&self.prefix))
    }

    /// Job type and pool of an in-progress list. Job names may hold colons, pool ids don't.
    #[must_use]
    pub fn parse_in_progress(&self, key: &str) -> Option<(JobTypeName, PoolId)> {
        let middle = key.strip_prefix(&self.prefix)?.strip_prefix("jobs:")?.strip_suffix(":inprogress")?;
        let (job_type, pool) = middle.rsplit_once(':')?;
        (!job_type.is_empty() && !pool.is_empty()).then(|| (job_type.into(), pool.into()))
    }

    /// Job type of a `max_concurrency` key.
    #[must_use]
    pub fn parse_max_concurrency(&self, key: &str) -> Option<JobTypeName> {
        let name = key.strip_prefix(&self.prefix)?.strip_prefix("jobs:")?.strip_suffix(":max_concurrency")?;
        Some(name.into())
    }
}

/// The text with the characters that mean something in a glob pattern escaped.
#[must_use]
pub fn glob_escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if "*?[]^\\-".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_is_the_library_s() {
        for (namespace, prefix) in [
            ("work", "work:"),
            ("work:", "work:"),
            ("", ""),
            ("{harbor_job_service_namespace}", "{harbor_job_service_namespace}:"),
        ] {
            assert_eq!(Namespace::new(namespace).prefix(), prefix);
        }
        let keys = Namespace::new("work");
        assert_eq!(keys.in_progress(&"a:b".into(), &"D".into()), b"work:jobs:a:b:D:inprogress");
        assert_eq!(keys.heartbeat(&"D".into()), b"work:worker_pools:D");
    }

    #[test]
    fn in_progress_lists_are_told_by_their_last_colon() {
        let keys = Namespace::new("w*");
        assert_eq!(keys.in_progress_pattern(), "w\\*:jobs:*:inprogress");
        assert_eq!(keys.parse_in_progress("w*:jobs:a:b:D:inprogress"), Some(("a:b".into(), "D".into())));
        assert_eq!(keys.parse_in_progress("w*:jobs:D:inprogress"), None);
        assert_eq!(keys.parse_in_progress("w:jobs:a:D:inprogress"), None);
        assert_eq!(keys.parse_max_concurrency("w*:jobs:a:b:max_concurrency"), Some("a:b".into()));
    }
}
