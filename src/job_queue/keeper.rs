//! The keeper of one `JobQueue`: a task that waits for whatever comes next and acts on it.
//!
//! What must be fast (a pod's end, a cap overwritten) waits for nothing slow: everything that asks the API server runs
//! in the [background](super::background), and a pass over Redis is one round trip.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use rand::Rng as _;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::audit::Mismatch;
use super::background::Background;
use super::caps::Caps;
use super::context::Context;
use super::link::Link;
use super::reporter::Reporter;
use super::scale::Scaler;
use super::status::{Halt, Problem, State, Workers};
use super::workers;
use crate::api::PAUSED_ANNOTATION;
use crate::api::job_queue::JobQueue;
use crate::metrics::{FailureLabels, QueueLabels};
use crate::protocol::{JobTypeName, PoolId};
use crate::reaper::judge::{Identity, Judge};
use crate::reaper::owner::{QueuePods, ResolvedTarget};
use crate::reaper::pods::index::Change;
use crate::reaper::verdict::Settings;
use crate::redis::Reason;

/// The longest pause between passes while Redis fails.
const RETRY_AT_MOST: Duration = Duration::from_secs(8);

/// What the API server says of the resource.
#[derive(Debug, Clone)]
pub enum Desired {
    /// It is there.
    Present(Arc<JobQueue>),
    /// It is gone.
    Gone,
}

/// The task's state.
pub struct Keeper {
    pub(super) context: Arc<Context>,
    desired: watch::Receiver<Desired>,
    nudged: Arc<Notify>,
    pub(super) queue: Arc<JobQueue>,
    pub(super) labels: QueueLabels,
    pub(super) halt: Option<Halt>,
    pub(super) background: Background,
    /// Redis, once it is known where it is.
    pub(super) link: Option<Link>,
    pub(super) redis: State<()>,
    pub(super) caps: Caps,
    pub(super) target: Option<ResolvedTarget>,
    /// Whether the target was found to be gone, or of no use, since it was last read.
    pub(super) target_lost: bool,
    pub(super) workers: State<Workers>,
    pub(super) pods: QueuePods,
    pods_told: watch::Receiver<Change>,
    pub(super) judge: Judge,
    pub(super) reporter: Reporter,
    pub(super) scaler: Scaler,
    /// Dead pools that were forgotten after the last look, which still shows them.
    pub(super) forgotten: BTreeSet<PoolId>,
    pub(super) mismatches: BTreeMap<JobTypeName, Mismatch>,
    pub(super) last_sweep: Option<std::time::Instant>,
    pub(super) hurried: u32,
    pub(super) next_pass: Instant,
    failed_passes: u32,
    pub(super) deletion_seen: Option<Instant>,
    pub(super) pods_ended_seen: Option<Instant>,
}

impl Keeper {
    /// A keeper that has done nothing yet.
    #[must_use]
    pub fn new(context: Arc<Context>, mut desired: watch::Receiver<Desired>, nudged: Arc<Notify>) -> Option<Box<Self>> {
        let Desired::Present(queue) = desired.borrow_and_update().clone() else { return None };
        let namespace = queue.namespace().unwrap_or_default();
        let labels = QueueLabels { namespace: namespace.as_str().into(), jobqueue: queue.name_any().into() };
        let identity =
            Identity { cluster: context.cluster.clone(), namespace: namespace.clone(), name: queue.name_any() };
        let mut keeper = Box::new(Self {
            pods_told: context.pods.subscribe(&namespace),
            reporter: Reporter::new(&queue),
            scaler: Scaler::default(),
            forgotten: BTreeSet::new(),
            mismatches: BTreeMap::new(),
            last_sweep: None,
            hurried: 0,
            judge: Judge::new(identity, settings(&queue)),
            pods: QueuePods::none(),
            context,
            desired,
            nudged,
            labels,
            halt: None,
            background: Background::default(),
            link: None,
            redis: State::Pending,
            caps: Caps::default(),
            target: None,
            target_lost: false,
            workers: State::Pending,
            next_pass: Instant::now(),
            failed_passes: 0,
            deletion_seen: None,
            pods_ended_seen: None,
            queue: queue.clone(),
        });
        keeper.adopt(queue);
        Some(keeper)
    }

    /// Works until the resource is gone or `stop` is cancelled.
    pub async fn run(mut self: Box<Self>, stop: CancellationToken) {
        let (mut lead, mut elected) = (self.context.lead.clone(), true);
        loop {
            self.start_background();
            self.say_farewell();
            self.report();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                changed = self.desired.changed() => {
                    let desired = self.desired.borrow_and_update().clone();
                    match desired {
                        // Whoever told us of the resource is gone, which says nothing about the resource.
                        _ if changed.is_err() => break,
                        Desired::Present(queue) => self.adopt(queue),
                        Desired::Gone => {
                            // Its target is free for another one, which may have its name.
                            self.scaler = Scaler::default();
                            Box::pin(self.last_words()).await;
                            break;
                        }
                    }
                }
                // The sender lives in the index, which outlives every keeper.
                Ok(()) = self.pods_told.changed() => Box::pin(self.react()).await,
                said = self.caps.next() => Box::pin(self.caps_said(said)).await,
                said = self.scaler.wake.said() => self.backlog_changed(said),
                () = self.nudged.notified() => self.background.apply_again(),
                done = self.background.next() => if let Some(done) = done { self.take(done) },
                () = tokio::time::sleep_until(self.next_pass) => Box::pin(self.pass()).await,
                changed = lead.changed(), if elected => elected = changed.is_ok(),
                () = self.reporter.due() => {}
            }
        }
        self.reporter.forget_metrics(&self.context.metrics, &self.labels);
        self.background.finish().await;
    }

    /// Takes in a new version of the resource.
    fn adopt(&mut self, queue: Arc<JobQueue>) {
        let before = std::mem::replace(&mut self.queue, queue);
        let queue = &self.queue;
        let deleting = queue.metadata.deletion_timestamp.is_some();
        let paused = is_paused(queue);
        let halt = match (deleting, paused) {
            (true, _) => Some(Halt::Deleting),
            (false, true) => Some(Halt::Paused),
            (false, false) => None,
        };
        let halt_changed = halt != self.halt;
        if halt_changed {
            info!(?halt, "management changes");
            self.halt = halt;
            self.caps.stop();
            self.background.all_due();
        }
        if deleting && self.deletion_seen.is_none() {
            self.deletion_seen = Some(Instant::now());
        }
        let first = Arc::ptr_eq(&before, queue) || self.background.is_new();
        let changed = first || before.spec != queue.spec;
        if changed {
            self.judge.set_settings(settings(queue));
            self.background.all_due();
            if first || before.spec.workers != queue.spec.workers {
                let containers =
                    queue.spec.workers.as_ref().map(|workers| workers.containers.clone()).unwrap_or_default();
                self.pods = if workers::scale_target(queue).is_some() {
                    QueuePods::new(&containers)
                } else {
                    QueuePods::none()
                };
                self.target = None;
                self.workers = if workers::scale_target(queue).is_some() {
                    State::Pending
                } else {
                    State::Good(Workers::Outsiders)
                };
            }
        }
        if let Some(link) = &mut self.link {
            link.speak_for(queue);
        }
        if changed || halt_changed {
            self.claim_target();
        }
        if changed || halt_changed {
            self.next_pass = Instant::now();
        }
    }

    /// Brings the pods up to date from the index, and has unknown `ReplicaSet`s read.
    pub(super) fn refresh_pods(&mut self) {
        let Some(target) = &self.target else { return };
        let unread = self.pods.refresh(&self.context.pods, target, &self.context.owners);
        if !unread.is_empty() {
            self.background.read_replica_sets(&self.context, unread);
        }
        let live = self.pods.records().filter(|record| record.gone.is_none() && !record.pod.is_over()).count();
        if self.target_lost {
            return;
        }
        self.workers = State::Good(Workers::Pods { replicas: live as i32, selector: target.selector_text.clone() });
    }

    /// After a pass: when the next one is due.
    pub(super) fn passed(&mut self, next: Duration) {
        self.failed_passes = 0;
        self.redis = State::Good(());
        self.next_pass = Instant::now() + next;
    }

    /// After a pass that failed: the next one waits longer each time, with a random part so that queues spread out.
    pub(super) fn pass_failed(&mut self, failure: &crate::redis::Failure) {
        self.failed_passes = self.failed_passes.saturating_add(1);
        let wait = (Duration::from_millis(500) * 2_u32.saturating_pow(self.failed_passes.min(6))).min(RETRY_AT_MOST);
        let wait = wait.mul_f64(rand::rng().random_range(0.5..1.0));
        self.next_pass = Instant::now() + wait;
        let problem = Problem {
            reason: failure.reason.as_str().into(),
            message: failure.message.clone(),
            stalled: !failure.may_pass(),
        };
        if self.redis != State::Bad(problem.clone()) {
            warn!(reason = problem.reason, "Redis: {}", problem.message);
            self.redis = State::Bad(problem);
        }
        let labels = FailureLabels {
            namespace: self.labels.namespace.clone(),
            jobqueue: self.labels.jobqueue.clone(),
            reason: failure.reason.as_str().into(),
        };
        self.context.metrics.failures.get_or_create(&labels).inc();
        self.reporter.failures.insert(labels.reason);
        if matches!(failure.reason, Reason::WrongPassword | Reason::NoPermission | Reason::TlsFailed) {
            self.background.read_access_soon();
        }
    }
}

pub(super) fn identity(context: &Context, queue: &JobQueue) -> Identity {
    Identity {
        cluster: context.cluster.clone(),
        namespace: queue.namespace().unwrap_or_default(),
        name: queue.name_any(),
    }
}

pub(super) fn is_paused(queue: &JobQueue) -> bool {
    queue.annotations().get(PAUSED_ANNOTATION).is_some_and(|value| value == "true")
}

pub(super) fn settings(queue: &JobQueue) -> Settings {
    let reaping = &queue.spec.reaping;
    let seconds = |value: i32| Duration::from_secs(u64::try_from(value).unwrap_or(0));
    Settings {
        heartbeat_timeout: seconds(reaping.heartbeat_timeout_seconds),
        outsider_timeout: (reaping.outsider_timeout_seconds > 0).then(|| seconds(reaping.outsider_timeout_seconds)),
        ..Settings::default()
    }
}
