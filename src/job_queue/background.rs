//! What a keeper asks of the API server, each in a task of its own, so that a slow API server delays no reap.
//!
//! Every task is bounded, runs at most once at a time for a keeper, and is tried again with growing pauses.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::error;

use super::access::{self, AccessError};
use super::caps::desired;
use super::context::Context;
use super::keeper::Keeper;
use super::link::Goodbye;
use super::scale_task::Change;
use super::slot::Slot;
use super::status::{Halt, Problem};
use super::workers::{self, WorkersError};
use super::{deletion, events, report};
use crate::api::condition::reason;
use crate::api::job_queue::{DeletionPolicy, JobQueue, RedisSpec};
use crate::protocol::gocraft_work::cap::Desired;
use crate::reaper::owner::target::{ResolvedTarget, TargetError};
use crate::reaper::owner::{OwnerCache, ReplicaSetRef};
use crate::redis::Endpoint;
use crate::scaling::apply::{Outcome, ScaleError};

/// Bound on every task.
const BOUND: Duration = Duration::from_secs(15);
/// How often Secrets are read again though nothing failed.
const SECRETS_EVERY: Duration = Duration::from_secs(60);
/// How often a scale target is looked at again.
const TARGET_EVERY: Duration = Duration::from_secs(60);
/// How often a template's Deployment is applied again, in case somebody changed it.
const DEPLOYMENT_EVERY: Duration = Duration::from_secs(600);
/// A target that somebody else may have scaled is looked at after this time.
const TARGET_SOON: Duration = Duration::from_secs(1);
/// After a refusal by Redis, Secrets are read again no sooner than this.
const REFUSED: Duration = Duration::from_secs(2);
/// A change of the finalizer shows in the watch within this time.
const FINALIZER_SEEN: Duration = Duration::from_secs(2);
/// After a task that failed on a defect.
const DEFECT: Duration = Duration::from_secs(30);

/// What a task found.
pub enum Done {
    /// The endpoint, or why there is none.
    Access(Result<Endpoint, AccessError>),
    /// The scale target, or why it can't be used.
    Target(Result<ResolvedTarget, Problem>),
    /// `ReplicaSet`s were read into the cache.
    ReplicaSets,
    /// The template's Deployment was applied or deleted.
    Deployment(Result<(), WorkersError>),
    /// The finalizer was changed.
    Finalizer(Result<(), String>),
    /// The resource as the API server has it now, asked because Redis says that it is paused; `None`: gone.
    Confirmed(Result<Option<Box<JobQueue>>, String>),
    /// A task failed on a defect of ours; which one is not known.
    Defect,
    /// A status was written.
    Written(report::Outcome),
    /// Events were sent, of the record up to an entry.
    Events(events::Sent),
    /// Replicas were written, or not; and who else writes them, where that was asked.
    Scaled(Box<Change>, Result<(Outcome, Option<String>), ScaleError>),
    /// Pods were marked, or not.
    Marked(Result<(), ScaleError>),
}

/// The tasks of one keeper.
pub struct Background {
    tasks: JoinSet<Done>,
    new: Option<()>,
    access: Slot,
    target: Slot,
    deployment: Slot,
    finalizer: Slot,
    /// Asks whether the resource is paused, when only Redis says so.
    confirm: Slot,
    /// Writes replicas and marks.
    scale: Slot,
    replica_sets: bool,
    releasing: bool,
    uses_secrets: bool,
    /// When the next task that is wanted is due.
    wake_at: Option<Instant>,
}

impl Default for Background {
    fn default() -> Self {
        Self {
            tasks: JoinSet::new(),
            new: None,
            access: Slot::default(),
            target: Slot::default(),
            deployment: Slot::default(),
            finalizer: Slot::default(),
            confirm: Slot::idle(),
            scale: Slot::idle(),
            replica_sets: false,
            releasing: false,
            uses_secrets: false,
            wake_at: None,
        }
    }
}

impl Background {
    /// Whether nothing was ever started.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.new.is_none()
    }

    /// Everything is due again.
    pub fn all_due(&mut self) {
        for slot in [&mut self.access, &mut self.target, &mut self.deployment, &mut self.finalizer] {
            slot.soon();
        }
    }

    /// Redis refused the credentials: Secrets are read again, but not in a hot loop.
    pub fn read_access_soon(&mut self) {
        if self.uses_secrets {
            self.access.at(Instant::now() + REFUSED);
        }
    }

    /// The Deployment was applied: its selector and pods are there to look at.
    pub fn look_for_target(&mut self) {
        self.target.soon();
    }

    /// Redis says that the resource is paused, and we don't know of it: one of us is not up to date.
    pub fn confirm_pause(&mut self) {
        self.confirm.against_a_rival();
    }

    /// Pods came or went for whatever reason: maybe somebody else scaled the target.
    pub fn look_for_target_soon(&mut self) {
        self.target.at(Instant::now() + TARGET_SOON);
    }

    /// There is something to write for scaling: at once, unless a write runs or waits after a failure.
    pub fn scale_when_free(&mut self) {
        self.scale.when_free();
    }

    /// Somebody else wrote the replicas: ours are written later each time.
    pub fn scale_against_a_rival(&mut self) {
        self.scale.against_a_rival();
    }

    /// Somebody changed or deleted the template's Deployment.
    pub fn apply_again(&mut self) {
        self.deployment.against_a_rival();
    }

    /// What the next task to end found; `Done` is taken in by the keeper. Cancel-safe.
    pub async fn next(&mut self) -> Option<Done> {
        let due = self.wake_at;
        let timer = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(joined) = self.tasks.join_next() => match joined {
                Ok(done) => {
                    self.ended(&done);
                    Some(done)
                }
                Err(failed) => {
                    error!(%failed, "a task failed on a defect of poolkeeper");
                    self.restart_all();
                    Some(Done::Defect)
                }
            },
            () = timer => None,
        }
    }

    /// Ends what runs; nothing of it needs to be finished.
    pub async fn finish(&mut self) {
        self.tasks.shutdown().await;
    }

    fn restart_all(&mut self) {
        let slots = [&mut self.access, &mut self.target, &mut self.deployment, &mut self.finalizer];
        for slot in slots.into_iter().chain([&mut self.confirm, &mut self.scale]) {
            slot.ended(true, Some(DEFECT));
        }
        (self.replica_sets, self.releasing) = (false, false);
    }

    fn ended(&mut self, done: &Done) {
        match done {
            Done::Access(result) => self.access.ended(result.is_ok(), self.uses_secrets.then_some(SECRETS_EVERY)),
            Done::Target(result) => self.target.ended(result.is_ok(), Some(TARGET_EVERY)),
            Done::ReplicaSets => self.replica_sets = false,
            Done::Deployment(result) => self.deployment.ended(result.is_ok(), Some(DEPLOYMENT_EVERY)),
            Done::Finalizer(result) => {
                self.releasing = false;
                self.finalizer.ended(result.is_ok(), Some(FINALIZER_SEEN));
            }
            Done::Confirmed(_) => self.confirm.ended(true, None),
            Done::Scaled(_, result) => {
                // One that moved on, or is being rolled out, is tried again with the next decision, but never in a hot loop.
                self.scale.ended(matches!(result, Ok((Outcome::Written, _))), None);
            }
            Done::Marked(result) => self.scale.ended(result.is_ok(), None),
            Done::Written(_) | Done::Events(_) | Done::Defect => {}
        }
    }

    /// Starts a task of the reporter's.
    pub fn spawn(&mut self, task: impl Future<Output = Done> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Has `ReplicaSet`s read, unless that is under way.
    pub fn read_replica_sets(&mut self, context: &Arc<Context>, wanted: Vec<ReplicaSetRef>) {
        if std::mem::replace(&mut self.replica_sets, true) {
            return;
        }
        let (client, owners): (_, Arc<OwnerCache>) = (context.client.clone(), context.owners.clone());
        self.tasks.spawn(async move {
            // What could not be read in time is asked for again with the next change.
            let _ = timeout(BOUND, owners.read(&client, &wanted)).await;
            Done::ReplicaSets
        });
    }

    /// Takes back what was pushed (without a goodbye: nothing), then takes away the finalizer. Whether this started now.
    pub fn release(&mut self, context: &Arc<Context>, queue: Arc<JobQueue>, goodbye: Option<Goodbye>) -> bool {
        if self.releasing || !self.finalizer.starts(&mut self.wake_at) {
            return false;
        }
        self.releasing = true;
        let client = context.client.clone();
        self.tasks.spawn(async move {
            if let Some(goodbye) = goodbye {
                match timeout(BOUND, goodbye.say(&pushed(&queue))).await {
                    Ok(Ok(())) => {}
                    Ok(Err(failure)) => {
                        return Done::Finalizer(Err(format!("Redis did not take back what was pushed: {failure}")));
                    }
                    Err(_) => return Done::Finalizer(Err("Redis did not take back what was pushed in time".into())),
                }
            }
            Done::Finalizer(bounded(deletion::set_finalizer(&client, &queue, false)).await)
        });
        true
    }
}

/// The job types whose cap or pause is taken back when the resource goes.
pub(super) fn pushed(queue: &JobQueue) -> Vec<Desired> {
    match queue.spec.deletion_policy {
        DeletionPolicy::Retain => Vec::new(),
        DeletionPolicy::Release => desired(queue),
    }
}

async fn bounded(call: impl Future<Output = Result<(), kube::Error>>) -> Result<(), String> {
    match timeout(BOUND, call).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(access::api_error(&error)),
        Err(_) => Err("the API server did not answer in time".into()),
    }
}

fn uses_secrets(spec: &RedisSpec) -> bool {
    spec.url_from.is_some() || spec.username_from.is_some() || spec.password_from.is_some() || spec.tls.is_some()
}

impl Keeper {
    /// Starts the tasks that are due.
    pub(super) fn start_background(&mut self) {
        self.background.new = Some(());
        self.background.wake_at = None;
        if self.halt == Some(Halt::Paused) {
            return;
        }
        let (context, queue) = (self.context.clone(), self.queue.clone());
        let background = &mut self.background;
        background.uses_secrets = uses_secrets(&queue.spec.redis);
        if background.access.starts(&mut background.wake_at) {
            let (client, namespace, queue) = (context.client.clone(), self.labels.namespace.clone(), queue.clone());
            let in_cluster = context.in_cluster;
            background.tasks.spawn(async move {
                let resolved =
                    timeout(BOUND, access::resolve(&client, &namespace, in_cluster, &queue.spec.redis)).await;
                Done::Access(resolved.unwrap_or_else(|_| Err(AccessError::slow())))
            });
        }
        if background.confirm.starts(&mut background.wake_at) {
            let (client, labels) = (context.client.clone(), self.labels.clone());
            background.tasks.spawn(async move {
                let api = Api::<JobQueue>::namespaced(client, &labels.namespace);
                let params = ListParams::default().fields(&format!("metadata.name={}", labels.jobqueue));
                Done::Confirmed(match timeout(BOUND, api.list(&params)).await {
                    Ok(Ok(found)) => Ok(found.items.into_iter().next().map(Box::new)),
                    Ok(Err(error)) => Err(access::api_error(&error)),
                    Err(_) => Err("the API server did not answer in time".into()),
                })
            });
        }
        if let Some(wanted) = workers::scale_target(&queue)
            && background.target.starts(&mut background.wake_at)
        {
            let (client, namespace) = (context.client.clone(), self.labels.namespace.clone());
            let known = self.target.as_ref().map(|target| target.resource.clone());
            self.scaler.target_asked = Some(std::time::Instant::now());
            background.tasks.spawn(async move {
                let resolved =
                    timeout(BOUND, ResolvedTarget::resolve(&client, &wanted, &namespace, known.as_ref())).await;
                Done::Target(match resolved {
                    Ok(result) => result.map_err(|error| target_problem(&error)),
                    Err(_) => Err(Problem {
                        reason: "TargetUnreadable".into(),
                        message: "spec.workers: the API server did not answer in time".into(),
                        stalled: false,
                    }),
                })
            });
        }
        if context.leads() {
            self.start_leaders_tasks(&context, &queue);
        }
    }

    fn start_leaders_tasks(&mut self, context: &Arc<Context>, queue: &Arc<JobQueue>) {
        let background = &mut self.background;
        let deleting = self.halt == Some(Halt::Deleting);
        let has_template = queue.spec.workers.as_ref().is_some_and(|workers| workers.template.is_some());
        if !deleting && deletion::has_finalizer(queue) != deletion::needs_finalizer(queue) {
            if background.finalizer.starts(&mut background.wake_at) {
                let (client, queue) = (context.client.clone(), queue.clone());
                background.tasks.spawn(async move {
                    Done::Finalizer(
                        bounded(deletion::set_finalizer(&client, &queue, deletion::needs_finalizer(&queue))).await,
                    )
                });
            }
            // Nothing is made before the finalizer that cleans up after it.
            return;
        }
        if background.scale.starts(&mut background.wake_at) {
            match self.scaling_task() {
                Some(task) => self.background.spawn(task),
                None => self.background.scale.passed_over(),
            }
        }
        let background = &mut self.background;
        if has_template && background.deployment.starts(&mut background.wake_at) {
            let (client, queue) = (context.client.clone(), queue.clone());
            background.tasks.spawn(async move {
                let work = async {
                    if deleting {
                        workers::delete(&client, &queue).await
                    } else {
                        workers::apply(&client, &queue).await
                    }
                };
                let result = timeout(BOUND, work).await;
                Done::Deployment(result.unwrap_or_else(|_| {
                    Err(WorkersError {
                        reason: reason::TEMPLATE_REFUSED,
                        message: "spec.workers.template: the API server did not answer in time".into(),
                    })
                }))
            });
        }
    }
}

fn target_problem(error: &TargetError) -> Problem {
    Problem {
        reason: error.reason().into(),
        message: format!("spec.workers.{error}"),
        stalled: !matches!(error, TargetError::Failed(_)),
    }
}
