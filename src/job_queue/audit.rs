//! Which counts don't match what runs.
//!
//! In health one atomic read finds, for every pool, its lock count equal to the length of its in-progress list, and the
//! lock equal to the sum of both (gocraft/work v0.5.1 `redis.go`: fetch and finish each change all three at once). So a
//! mismatch is no moment between two steps. It is repaired when a second look finds it unchanged.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::{JobTypeName, JobTypeSeen, Observation};

/// What doesn't match in one job type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The lock count.
    pub lock: i64,
    /// Sum of the lock counts by pool.
    pub lock_info: i64,
    /// Jobs in in-progress lists.
    pub in_progress: i64,
}

/// The job types whose counts don't match, and how.
#[must_use]
pub fn mismatches(observation: &Observation) -> BTreeMap<JobTypeName, Mismatch> {
    observation
        .job_types
        .iter()
        .filter(|(_, seen)| seen.spoiled.is_none())
        .filter_map(|(job, seen)| mismatch(seen).map(|found| (job.clone(), found)))
        .collect()
}

fn mismatch(seen: &JobTypeSeen) -> Option<Mismatch> {
    let lock_info = seen.lock_info.values().fold(0_i64, |sum, count| sum.saturating_add(*count));
    let in_progress = seen.running() as i64;
    let pools: BTreeSet<_> = seen.lock_info.keys().chain(seen.in_progress.keys()).collect();
    let every_pool_matches = pools.into_iter().all(|pool| {
        seen.lock_info.get(pool).copied().unwrap_or(0) == seen.in_progress.get(pool).copied().unwrap_or(0) as i64
    });
    (seen.lock != lock_info || !every_pool_matches).then_some(Mismatch { lock: seen.lock, lock_info, in_progress })
}

/// Mismatches that the look before found just the same: these are repaired.
#[must_use]
pub fn lasting(
    before: &BTreeMap<JobTypeName, Mismatch>,
    now: &BTreeMap<JobTypeName, Mismatch>,
) -> BTreeSet<JobTypeName> {
    now.iter().filter(|(job, found)| before.get(*job) == Some(*found)).map(|(job, _)| job.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::PoolId;

    fn seen(lock: i64, pools: &[(&str, i64, u64)]) -> JobTypeSeen {
        JobTypeSeen {
            lock,
            lock_info: pools.iter().filter(|p| p.1 != 0).map(|p| (PoolId::from(p.0), p.1)).collect(),
            in_progress: pools.iter().filter(|p| p.2 != 0).map(|p| (PoolId::from(p.0), p.2)).collect(),
            ..JobTypeSeen::default()
        }
    }

    #[test]
    fn counts_are_compared_pool_by_pool() {
        for (what, lock, pools, matches) in [
            ("idle", 0, &[][..], true),
            ("healthy", 3, &[("a", 2, 2), ("b", 1, 1)], true),
            ("lock leaked", 5, &[("a", 2, 2)], false),
            ("lock negative", -1, &[], false),
            ("lock without a job", 2, &[("a", 2, 1)], false),
            ("job without a lock", 1, &[("a", 1, 2)], false),
            ("equal sums, wrong pools", 3, &[("a", 2, 1), ("b", 1, 2)], false),
            ("negative field", 0, &[("a", -1, 0), ("b", 1, 1)], false),
        ] {
            assert_eq!(mismatch(&seen(lock, pools)).is_none(), matches, "{what}");
        }
    }

    #[test]
    fn only_what_two_looks_found_alike_is_repaired() {
        let (mail, sms) = (JobTypeName::from("mail"), JobTypeName::from("sms"));
        let found = |lock| Mismatch { lock, lock_info: 0, in_progress: 0 };
        let before = BTreeMap::from([(mail.clone(), found(2)), (sms.clone(), found(1))]);
        let now = BTreeMap::from([(mail.clone(), found(2)), (sms, found(3))]);
        assert_eq!(lasting(&before, &now), BTreeSet::from([mail]));
    }
}
