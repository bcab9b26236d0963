//! When a status is written, and how: conditions, replicas and reaps at once, counts at most every ten seconds and only
//! when they changed, all through one bucket that bounds the writes per second of this process.

use std::sync::Mutex;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;

use crate::api::job_queue::JobQueue;
use crate::api::status::JobQueueStatus;
use crate::api::{FIELD_MANAGER, GROUP};

/// Counts that moved are written no sooner than this after the last write.
pub const COUNTS_EVERY: Duration = Duration::from_secs(10);

/// Bound on one write to the API server.
pub const WRITE_BOUND: Duration = Duration::from_secs(10);

/// When a new status is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It says nothing new.
    Never,
    /// Now.
    Now,
    /// After this time, unless something more urgent comes.
    After(Duration),
}

/// Decides when `next` is written, `since_write` after `written` was.
#[must_use]
pub fn due(written: &JobQueueStatus, next: &JobQueueStatus, since_write: Option<Duration>) -> Due {
    if written == next {
        return Due::Never;
    }
    let Some(since_write) = since_write else { return Due::Now };
    let urgent = written.observed_generation != next.observed_generation
        || written.conditions != next.conditions
        || written.replicas != next.replicas
        || written.selector != next.selector
        || written.last_reap != next.last_reap
        || last_scaled(written) != last_scaled(next);
    if urgent || since_write >= COUNTS_EVERY { Due::Now } else { Due::After(COUNTS_EVERY.saturating_sub(since_write)) }
}

/// What of scaling can't wait; the number and how it came about may move with every look.
fn last_scaled(status: &JobQueueStatus) -> Option<Timestamp> {
    status.scaling.as_ref().and_then(|scaling| scaling.last_scale_time)
}

/// Bounds the status writes of this process. Writers wait their turn in the order they came.
#[derive(Debug)]
pub struct WriteBudget {
    interval: Duration,
    next: Mutex<Instant>,
}

impl WriteBudget {
    /// At most `per_second` writes, evenly spaced once a burst of one second's worth is used up.
    #[must_use]
    pub fn new(per_second: u32) -> Self {
        Self { interval: Duration::from_secs(1) / per_second.max(1), next: Mutex::new(Instant::now()) }
    }

    /// Waits for a turn.
    pub async fn turn(&self) {
        let burst = Duration::from_secs(1);
        let now = Instant::now();
        let at = {
            let mut next = self.next.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let earliest = now.checked_sub(burst).unwrap_or(now);
            let at = (*next).max(earliest);
            *next = at + self.interval;
            at
        };
        tokio::time::sleep_until(at).await;
    }
}

/// What came of a write.
#[derive(Debug)]
pub enum Outcome {
    /// The API server has it.
    Written,
    /// Another replica leads by now: it was not written.
    NotLeading,
    /// The API server refused it, or did not answer.
    Failed(String),
}

/// Writes a status by server-side apply: what it no longer has is removed, what others have there is left.
pub async fn write(client: &Client, namespace: &str, name: &str, status: &JobQueueStatus) -> Result<(), kube::Error> {
    let body = json!({
        "apiVersion": format!("{GROUP}/v1alpha1"),
        "kind": "JobQueue",
        "metadata": {"name": name},
        "status": status,
    });
    Api::<JobQueue>::namespaced(client.clone(), namespace)
        .patch_status(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&body))
        .await
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::status::LastReap;

    #[test]
    fn what_matters_is_written_at_once_and_counts_later() {
        let written = JobQueueStatus { waiting: 1, ..JobQueueStatus::default() };
        let counts = JobQueueStatus { waiting: 2, ..JobQueueStatus::default() };
        let replicas = JobQueueStatus { replicas: 3, ..written.clone() };
        let reap = JobQueueStatus { last_reap: Some(LastReap::default()), ..written.clone() };
        let second = Duration::from_secs(1);
        for (what, next, since, expected) in [
            ("nothing new", &written, Some(second), Due::Never),
            ("never written", &counts, None, Due::Now),
            ("counts too soon", &counts, Some(second), Due::After(Duration::from_secs(9))),
            ("counts in time", &counts, Some(COUNTS_EVERY), Due::Now),
            ("replicas", &replicas, Some(second), Due::Now),
            ("a reap", &reap, Some(second), Due::Now),
        ] {
            assert_eq!(due(&written, next, since), expected, "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_budget_lets_a_burst_pass_and_spaces_the_rest() {
        let budget = WriteBudget::new(10);
        tokio::time::advance(Duration::from_secs(60)).await;
        let start = Instant::now();
        for _ in 0..11 {
            budget.turn().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO, "a second's worth at once");
        for _ in 0..10 {
            budget.turn().await;
        }
        assert_eq!(start.elapsed(), Duration::from_secs(1));
    }
}
