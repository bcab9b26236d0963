//! How many replicas are recommended at a look, before anything holds them: those by ratio, and more of them "while
//! the oldest runnable job is older than" `maxWaitSeconds`.
//!
//! Growth by wait goes one replica at a time, each after the last one is there, and not beyond what is useful. What
//! has grown does not shrink back while the wait lasts.

use std::time::{Duration, Instant};

use super::decision::Facts;
use super::demand::Demand;
use super::history::History;
use super::pods;
use super::rules::Rules;

/// A new replica has this long to take jobs before the next one is asked for.
const GROW_EVERY: Duration = Duration::from_secs(15);
/// Waits are known to the second: that long after a bound they are seen to be beyond it.
const RESOLUTION: Duration = Duration::from_secs(1);

/// What is recommended at one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recommendation {
    /// How many replicas; the bounds don't count here.
    pub replicas: i32,
    /// What asks for them.
    pub because: Because,
    /// When that would change by itself.
    pub changes_in: Option<Duration>,
}

impl Recommendation {
    /// Whether all that asks for it is what could not be read.
    pub fn unread(&self) -> bool {
        self.because == Because::Unread
    }
}

/// What asks for replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Because {
    /// Runnable and running jobs, by ratio.
    Jobs,
    /// The wait of the oldest runnable job.
    Wait,
    /// Nothing that could be read, but not all could be.
    Unread,
}

/// What is recommended for a target at `now`.
pub(super) fn recommend(
    facts: &Facts<'_>,
    rules: &Rules,
    demand: &Demand,
    history: &History,
    now: Instant,
) -> Recommendation {
    let mut recommended = Recommendation { replicas: demand.replicas, because: Because::Jobs, changes_in: None };
    if let (Some(bound), Some(wait)) = (rules.max_wait, demand.oldest_wait) {
        let grown = facts.current.saturating_add(1).min(demand.useful);
        let pause = history.since_raise(now).map_or(Duration::ZERO, |since| GROW_EVERY.saturating_sub(since));
        let asked_for_are_there = facts.pods_known && pods::all_ready(facts.pods, facts.current);
        let by_wait = if asked_for_are_there && pause.is_zero() { grown } else { grown.min(facts.current) };
        if wait > bound && by_wait > demand.replicas {
            recommended.replicas = by_wait;
            recommended.because = Because::Wait;
        }
        if grown > demand.replicas {
            let passes = (wait <= bound).then(|| bound.saturating_sub(wait).saturating_add(RESOLUTION));
            let resumes = (wait > bound && asked_for_are_there && !pause.is_zero()).then_some(pause);
            recommended.changes_in = passes.or(resumes);
        }
    }
    // Missing data is never zero.
    if demand.incomplete && facts.current > 0 && recommended.replicas == 0 {
        recommended.replicas = 1;
        recommended.because = Because::Unread;
    }
    recommended
}
