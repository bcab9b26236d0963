//! What a resource's `scaling` block says, in the units of the decision.

use std::time::Duration;

/// The `scaling` block of one `JobQueue`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// `minReplicas`.
    pub min: i32,
    /// `maxReplicas`.
    pub max: i32,
    /// `jobsPerReplica`: runnable and running jobs that one replica should have. `None`: as many as it runs at once.
    pub jobs_per_replica: Option<u32>,
    /// `maxWaitSeconds`: grow while the oldest runnable job is older than this. `None`: don't look at the wait.
    pub max_wait: Option<Duration>,
    /// `scaleDownStabilizationSeconds`: not below what was recommended within this time.
    pub stabilization: Duration,
    /// `maxScaleUpPerMinute`: how many replicas may be added within any 60 seconds. `None` or 0: no bound.
    pub max_up_per_minute: Option<u32>,
    /// `protectBusyPods`: never fewer replicas than pods that run a job, and idle pods go first.
    pub protect_busy: bool,
}

impl Rules {
    /// A number of replicas within the bounds. Should they contradict each other, `max` counts.
    #[must_use]
    pub fn bounded(&self, replicas: i32) -> i32 {
        replicas.max(self.min).min(self.max).max(0)
    }

    /// Jobs that one replica should have, at least one. `concurrency`: jobs that one pod runs at once.
    #[must_use]
    pub fn jobs_per_replica(&self, concurrency: u32) -> u32 {
        self.jobs_per_replica.unwrap_or(concurrency).max(1)
    }
}
