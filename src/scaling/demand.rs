//! How many replicas the jobs ask for that could run now or do run.
//!
//! Every job type asks for a fraction of a replica, and the fractions add up: the runnable and running jobs by
//! `jobsPerReplica`, but not more than its cap lets run at once ("10 jobs at once need no 20 pods of 10"). All of it is
//! exact: no rounding before the end, and no count that is too large.

use std::time::Duration;

use super::rules::Rules;
use crate::protocol::JobTypeName;

/// One job type, as one look at Redis and at the pods showed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobTypeFacts {
    /// Its name.
    pub name: JobTypeName,
    /// Jobs in its list.
    pub waiting: u64,
    /// Jobs that wait elsewhere for a time that has come: nobody moves them to the list while there are no pods.
    pub due: u64,
    /// Jobs that run in pods of the queue that are not terminating, or in pools whose pod is not known yet.
    pub running: u64,
    /// How many may run at once; `None`: any number. Never 0, which means "any number" in Redis.
    pub cap: Option<u64>,
    /// The lock count: how many run anywhere, by whomever, as far as the cap is concerned.
    pub locks: u64,
    /// Whether workers are kept from taking its jobs.
    pub paused: bool,
    /// How long the oldest job that waits or is due has done so.
    pub oldest_wait: Option<Duration>,
    /// What of it could not be read, if anything: its counts may be too small.
    pub unread: Option<Unread>,
}

/// What could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// A key of the job type, which has a wrong type.
    JobType,
    /// `scheduled` or `retry`, whose key is the name of these facts.
    Set,
    /// Due entries that were not looked at yet, since there are so many.
    DueEntries,
}

/// Jobs that workers could take now, if there were enough of them.
#[must_use]
pub fn runnable(facts: &JobTypeFacts) -> u64 {
    let backlog = facts.waiting.saturating_add(facts.due);
    match (facts.paused, facts.cap) {
        (true, _) => 0,
        (false, Some(cap)) => backlog.min(cap.saturating_sub(facts.locks)),
        (false, None) => backlog,
    }
}

/// What all job types of a queue ask for together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// Jobs that could be taken now.
    pub runnable: u64,
    /// Jobs that run.
    pub running: u64,
    /// Jobs that wait or are due, and that the cap of their type keeps from being taken.
    pub blocked_by_cap: u64,
    /// Jobs of paused types that wait or are due.
    pub paused: u64,
    /// How long the oldest job waits of those types that have runnable jobs.
    pub oldest_wait: Option<Duration>,
    /// Replicas by ratio.
    pub replicas: i32,
    /// Replicas beyond which more could only idle. Never less than `replicas`.
    pub useful: i32,
    /// Whether not all of a type was read: the demand may be larger.
    pub incomplete: bool,
}

/// Adds up what `job_types` ask for. `concurrency`: jobs that one pod runs at once.
#[must_use]
pub fn demand(job_types: &[JobTypeFacts], rules: &Rules, concurrency: u32) -> Demand {
    let concurrency = concurrency.max(1);
    let mut sum = Demand {
        replicas: replicas(job_types, rules.jobs_per_replica(concurrency), concurrency),
        // One job on each pod is the most that can be made of them.
        useful: replicas(job_types, 1, concurrency),
        ..Demand::default()
    };
    for facts in job_types {
        let (backlog, runnable) = (facts.waiting.saturating_add(facts.due), runnable(facts));
        sum.runnable = sum.runnable.saturating_add(runnable);
        sum.running = sum.running.saturating_add(facts.running);
        let kept = if facts.paused { &mut sum.paused } else { &mut sum.blocked_by_cap };
        *kept = kept.saturating_add(backlog - runnable);
        if runnable > 0 {
            sum.oldest_wait = sum.oldest_wait.max(facts.oldest_wait);
        }
        sum.incomplete |= facts.unread.is_some();
    }
    sum
}

/// The sum of `n / per_replica` over all types, or of `cap / concurrency` where that is less, rounded up.
fn replicas(job_types: &[JobTypeFacts], per_replica: u32, concurrency: u32) -> i32 {
    let (per_replica, concurrency) = (u128::from(per_replica), u128::from(concurrency));
    // The fractions have one of two denominators. A product stays below 2^97, so that 2^31 types could be added.
    let (mut by_jobs, mut by_caps) = (0_u128, 0_u128);
    for facts in job_types {
        let jobs = u128::from(facts.running) + u128::from(runnable(facts));
        match facts.cap.map(u128::from) {
            Some(cap) if cap * per_replica < jobs * concurrency => by_caps += cap,
            _ => by_jobs += jobs,
        }
    }
    let sum = (by_jobs * concurrency + by_caps * per_replica).div_ceil(per_replica * concurrency);
    i32::try_from(sum).unwrap_or(i32::MAX)
}
