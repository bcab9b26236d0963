//! Live numbers, in `OpenMetrics` form.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Labels of one `JobQueue`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct QueueLabels {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub jobqueue: Arc<str>,
}

/// Labels of one job type of one `JobQueue`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct JobLabels {
    /// Namespace of the `JobQueue`.
    pub namespace: Arc<str>,
    /// Name of the `JobQueue`.
    pub jobqueue: Arc<str>,
    /// The job type.
    pub job: Arc<str>,
}

/// Labels of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FailureLabels {
    /// Namespace of the `JobQueue`.
    pub namespace: Arc<str>,
    /// Name of the `JobQueue`.
    pub jobqueue: Arc<str>,
    /// The condition's reason.
    pub reason: Arc<str>,
}

/// Labels of a reap.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReapLabels {
    /// Namespace of the `JobQueue`.
    pub namespace: Arc<str>,
    /// Name of the `JobQueue`.
    pub jobqueue: Arc<str>,
    /// Name of the proof.
    pub proof: Arc<str>,
}

/// Labels of a change of replicas.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ScaleLabels {
    /// Namespace of the `JobQueue`.
    pub namespace: Arc<str>,
    /// Name of the `JobQueue`.
    pub jobqueue: Arc<str>,
    /// `up` or `down`.
    pub direction: Arc<str>,
}

type Floats = Gauge<f64, AtomicU64>;

/// All metrics of this process.
pub struct Metrics {
    registry: Registry,
    /// Jobs that wait, by job type.
    pub waiting: Family<JobLabels, Gauge>,
    /// Jobs that run, by job type.
    pub running: Family<JobLabels, Gauge>,
    /// Lock count in Redis, by job type.
    pub locks: Family<JobLabels, Gauge>,
    /// Max concurrency in Redis, by job type; 0: no cap.
    pub max_concurrency: Family<JobLabels, Gauge>,
    /// Age of the job that runs next, by job type.
    pub oldest_wait: Family<JobLabels, Floats>,
    /// Pools settled by this replica, by proof.
    pub pools_reaped: Family<ReapLabels, Counter>,
    /// Jobs given back by this replica.
    pub jobs_requeued: Family<QueueLabels, Counter>,
    /// Caps and pauses put back by this replica.
    pub caps_overwritten: Family<JobLabels, Counter>,
    /// Passes that failed, by reason.
    pub failures: Family<FailureLabels, Counter>,
    /// Seconds from the moment that this replica saw a worker's end to the moment its locks were free.
    pub reap_seconds: Family<QueueLabels, Histogram>,
    /// Replicas that the work asks for.
    pub desired_replicas: Family<QueueLabels, Gauge>,
    /// Changes of replicas by this replica of the operator.
    pub scalings: Family<ScaleLabels, Counter>,
    /// Seconds from the beginning of the look that asked for more replicas to their being written.
    pub scale_up_seconds: Family<QueueLabels, Histogram>,
    /// Passes of this replica: each is one round trip to Redis, and one more when pools came or went.
    pub passes: Family<QueueLabels, Counter>,
    /// Whether this replica leads.
    pub leader: Gauge,
    /// `JobQueue`s under management.
    pub job_queues: Gauge,
    /// Objects left behind when a finalizer gave up.
    pub cleanups_abandoned: Family<QueueLabels, Counter>,
}

fn reap_buckets() -> Histogram {
    Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0])
}

impl Metrics {
    /// Metrics with all families registered.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let mut all = Self {
            registry: Registry::with_prefix("poolkeeper"),
            waiting: Family::default(),
            running: Family::default(),
            locks: Family::default(),
            max_concurrency: Family::default(),
            oldest_wait: Family::default(),
            pools_reaped: Family::default(),
            jobs_requeued: Family::default(),
            caps_overwritten: Family::default(),
            failures: Family::default(),
            reap_seconds: Family::new_with_constructor(reap_buckets as fn() -> Histogram),
            desired_replicas: Family::default(),
            scalings: Family::default(),
            scale_up_seconds: Family::new_with_constructor(reap_buckets as fn() -> Histogram),
            passes: Family::default(),
            leader: Gauge::default(),
            job_queues: Gauge::default(),
            cleanups_abandoned: Family::default(),
        };
        let r = &mut all.registry;
        r.register("jobs_waiting", "Jobs that wait", all.waiting.clone());
        r.register("jobs_running", "Jobs that run, by the in-progress lists", all.running.clone());
        r.register("locks", "Lock count in Redis", all.locks.clone());
        r.register("max_concurrency", "Max concurrency in Redis, 0 means no cap", all.max_concurrency.clone());
        r.register("oldest_wait_seconds", "Age of the job that runs next", all.oldest_wait.clone());
        r.register("pools_reaped", "Dead pools settled by this replica", all.pools_reaped.clone());
        r.register(
            "jobs_requeued",
            "Jobs of dead workers given back to their queue by this replica",
            all.jobs_requeued.clone(),
        );
        r.register(
            "caps_overwritten",
            "Caps and pauses that somebody overwrote and this replica put back",
            all.caps_overwritten.clone(),
        );
        r.register("failures", "Passes that failed, by reason", all.failures.clone());
        r.register("reap_seconds", "From a worker's end seen to its locks free", all.reap_seconds.clone());
        r.register("desired_replicas", "Replicas that the work asks for", all.desired_replicas.clone());
        r.register("scalings", "Changes of replicas by this replica of the operator", all.scalings.clone());
        r.register(
            "scale_up_seconds",
            "From the beginning of the look that asked for more replicas to their being written",
            all.scale_up_seconds.clone(),
        );
        r.register(
            "passes",
            "Passes over Redis by this replica, each one round trip, or two when pools came or went",
            all.passes.clone(),
        );
        r.register("leader", "1 while this replica writes to the API server", all.leader.clone());
        r.register("job_queues", "JobQueues under management", all.job_queues.clone());
        r.register(
            "cleanups_abandoned",
            "Deleted resources whose clean-up was given up",
            all.cleanups_abandoned.clone(),
        );
        Arc::new(all)
    }

    /// All metrics as `OpenMetrics` text.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Drops the counters of a queue that is gone.
    pub fn forget_queue(&self, queue: &QueueLabels, proofs: &BTreeSet<Arc<str>>, reasons: &BTreeSet<Arc<str>>) {
        self.jobs_requeued.remove(queue);
        self.reap_seconds.remove(queue);
        self.passes.remove(queue);
        self.desired_replicas.remove(queue);
        self.scale_up_seconds.remove(queue);
        for direction in ["up", "down"] {
            self.scalings.remove(&ScaleLabels {
                namespace: queue.namespace.clone(),
                jobqueue: queue.jobqueue.clone(),
                direction: direction.into(),
            });
        }
        let (namespace, jobqueue) = (&queue.namespace, &queue.jobqueue);
        for proof in proofs {
            self.pools_reaped.remove(&ReapLabels {
                namespace: namespace.clone(),
                jobqueue: jobqueue.clone(),
                proof: proof.clone(),
            });
        }
        for reason in reasons {
            self.failures.remove(&FailureLabels {
                namespace: namespace.clone(),
                jobqueue: jobqueue.clone(),
                reason: reason.clone(),
            });
        }
    }

    /// Drops the numbers of job types that a queue no longer has.
    pub fn forget_jobs<'a>(&self, queue: &QueueLabels, jobs: impl Iterator<Item = &'a str>) {
        for job in jobs {
            let labels =
                JobLabels { namespace: queue.namespace.clone(), jobqueue: queue.jobqueue.clone(), job: job.into() };
            self.waiting.remove(&labels);
            self.running.remove(&labels);
            self.locks.remove(&labels);
            self.max_concurrency.remove(&labels);
            self.oldest_wait.remove(&labels);
            self.caps_overwritten.remove(&labels);
        }
    }
}
