//! Which caps and pauses a queue holds, and what the watching connection says about them.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use super::keeper::Keeper;
use super::ownership::{Holder, holders};
use super::status::{Holding, Problem, State};
use crate::api::condition::reason;
use crate::api::job_queue::JobQueue;
use crate::metrics::JobLabels;
use crate::protocol::gocraft_work::cap::{CapHeld, Desired, Held, PutBack, PutBackOf};
use crate::protocol::gocraft_work::{Fenced, GocraftWork, wrong_type};
use crate::protocol::{JobTypeName, Observation};
use crate::redis::tracking::Watching;
use crate::redis::{Failure, Value};

/// How long the fence may refuse before the status says so.
const FENCE_MOVES: Duration = Duration::from_secs(2);

/// The caps and pauses that a queue asks for.
#[must_use]
pub fn desired(queue: &JobQueue) -> Vec<Desired> {
    queue
        .spec
        .jobs
        .iter()
        .filter(|job| job.max_concurrency.is_some() || job.paused.is_some())
        .map(|job| Desired {
            job_type: job.name.as_str().into(),
            cap: job.max_concurrency.map(i64::from),
            paused: job.paused,
        })
        .collect()
}

/// The caps of one queue.
pub struct Caps {
    watching: Option<Watching>,
    pub(super) desired: Vec<Desired>,
    generation: i64,
    /// What the last run left in Redis, of the same `desired`: what then differs was overwritten by somebody.
    held: BTreeMap<JobTypeName, CapHeld>,
    /// Job types that others hold, and who.
    pub others: Vec<Problem>,
    /// Whether caps are held.
    pub state: State<Holding>,
    /// Since when the fence refuses.
    refused_since: Option<Instant>,
    /// Since when `state` is pending.
    pub pending_since: Instant,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            watching: None,
            desired: Vec::new(),
            generation: 0,
            held: BTreeMap::new(),
            others: Vec::new(),
            state: State::Pending,
            refused_since: None,
            pending_since: Instant::now(),
        }
    }
}

impl Caps {
    /// Holds nothing any more.
    pub fn stop(&mut self) {
        *self = Self::default();
    }

    /// Holds these from now on.
    fn hold(&mut self, work: &GocraftWork, desired: Vec<Desired>, observe_only: bool, resync: Duration) {
        let generation = work.speaker().generation;
        if desired.is_empty() {
            self.watching = None;
            self.desired.clear();
            self.state = State::Good(Holding::Nothing);
            return;
        }
        match &self.watching {
            Some(_) if self.desired == desired && self.generation == generation => return,
            Some(watching) => {
                let (keys, args) = work.hold_caps_input(&desired, observe_only);
                watching.replace(keys, args);
            }
            None => self.watching = Some(work.client().tracker().watch(work.hold_caps(&desired, observe_only, resync))),
        }
        if self.desired != desired {
            self.held.clear();
            self.state = State::Pending;
            self.pending_since = Instant::now();
        }
        (self.desired, self.generation) = (desired, generation);
    }

    /// The result of the next run. Never comes while nothing is held. Cancel-safe.
    pub async fn next(&mut self) -> Result<Value, Failure> {
        match &mut self.watching {
            Some(watching) => watching.next().await,
            None => std::future::pending().await,
        }
    }

    /// Takes in what a run found; what it put back of somebody else's doing.
    fn take(&mut self, held: &Held) -> Vec<PutBack> {
        let mut put_back = Vec::new();
        for (job_type, now) in &held.job_types {
            let asked = self.desired.iter().find(|one| one.job_type == *job_type);
            // Only what was as asked for before can have been overwritten; the rest is a first push, or an edit.
            let (Some(before), Some(asked)) = (self.held.get(job_type), asked) else { continue };
            let cap = now.cap.unwrap_or(0);
            if let Some(overwritten) = &now.cap_written
                && before.cap == asked.cap
            {
                let old = overwritten.old.clone().unwrap_or_default();
                put_back.push(PutBack { job_type: job_type.clone(), what: PutBackOf::Cap, old, cap });
            }
            if now.pause_written && Some(before.paused) == asked.paused {
                let old = if before.paused { String::new() } else { "paused".into() };
                put_back.push(PutBack { job_type: job_type.clone(), what: PutBackOf::Pause, old, cap });
            }
        }
        self.held.clone_from(&held.job_types);
        put_back
    }
}

impl Keeper {
    /// Holds the caps that are ours to hold, by the claims that a look found.
    pub(super) fn hold_caps(&mut self, observation: &Observation) {
        let Some(link) = &self.link else { return };
        let mut claims = observation.claims.clone();
        claims.extend(link.taken_by.iter().cloned());
        let holders = holders(&link.own_claim(), &claims, observation.redis_time);
        let ours = desired(&self.queue)
            .into_iter()
            .filter(|one| holders.get(&one.job_type).is_none_or(|holder| *holder == Holder::Us));
        self.caps.others = holders.iter().filter_map(|(job, holder)| held_by_another(job, holder)).collect();
        self.caps.hold(&link.work, ours.collect(), self.context.observe_only, self.context.resync);
    }

    /// Takes in what the watching connection said.
    pub(super) async fn caps_said(&mut self, said: Result<Value, Failure>) {
        let Some(link) = &mut self.link else { return };
        let held = match said.and_then(|value| link.work.parse_held(value)) {
            Ok(held) => held,
            Err(failure) => {
                self.caps.state = State::Bad(Problem {
                    reason: failure.reason.as_str().into(),
                    message: format!("caps can't be held: {}", failure.message),
                    stalled: !failure.may_pass(),
                });
                return;
            }
        };
        if let Some(fenced) = held.fenced {
            if self.context.observe_only {
                // Without a fence of ours nothing is written anyway.
                return;
            }
            if fenced == Fenced::Unfenced {
                // The script runs again by itself when the fence has moved.
                if let Err(error) = link.work.fence(crate::protocol::gocraft_work::FenceOp::Advance).await {
                    warn!(%error, "the fence could not be advanced; caps are held once it is");
                }
                return;
            }
            if fenced == Fenced::Held {
                self.background.confirm_pause();
            }
            // For a moment after an edit, this replica or another one has moved the fence and not yet its caps.
            let since = *self.caps.refused_since.get_or_insert_with(Instant::now);
            if since.elapsed() < FENCE_MOVES {
                return;
            }
            self.caps.state =
                State::Bad(Problem { reason: reason::FENCED.into(), message: fenced.to_string(), stalled: false });
            return;
        }
        self.caps.refused_since = None;
        let put_back = self.caps.take(&held);
        let tracked = self.caps.watching.as_ref().is_some_and(Watching::tracking_active);
        let spoiled = held.job_types.iter().find_map(|(name, job)| Some((name, job.spoiled.as_ref()?)));
        self.caps.state = match spoiled {
            Some((name, key)) => State::Bad(Problem {
                reason: reason::WRONG_KEY_TYPE.into(),
                message: format!("{}; other job types are held", wrong_type::advice(Some(name), key)),
                stalled: true,
            }),
            None => State::Good(if tracked { Holding::Tracked } else { Holding::Polled }),
        };
        if !put_back.is_empty() {
            self.record(put_back).await;
        }
    }

    async fn record(&mut self, put_back: Vec<PutBack>) {
        let Some(link) = &self.link else { return };
        for one in &put_back {
            let labels = JobLabels {
                namespace: self.labels.namespace.clone(),
                jobqueue: self.labels.jobqueue.clone(),
                job: one.job_type.as_str().into(),
            };
            self.context.metrics.caps_overwritten.get_or_create(&labels).inc();
        }
        match link.work.record_overwrites(&put_back).await {
            Ok(above) => {
                for (one, above) in put_back.iter().zip(above) {
                    info!(job = %one.job_type, old = one.old, cap = one.cap, above, "somebody overwrote a cap or pause; ours is back");
                }
            }
            Err(error) => warn!(%error, "a put-back could not be recorded in Redis"),
        }
        self.next_pass = tokio::time::Instant::now();
    }
}

fn held_by_another(job: &JobTypeName, holder: &Holder) -> Option<Problem> {
    match holder {
        Holder::Us => None,
        Holder::Older { namespace, name } => Some(Problem {
            reason: reason::NAMED_BY_OLDER_QUEUE.into(),
            message: format!(
                "job type {job:?} is named by the older JobQueue {namespace}/{name} too, which holds it; take it out of one of them",
                job = job.as_str()
            ),
            stalled: true,
        }),
        Holder::OtherCluster { cluster, namespace, name } => Some(Problem {
            reason: reason::CLAIMED_BY_OTHER_CLUSTER.into(),
            message: format!(
                "job type {job:?} is held by the JobQueue {namespace}/{name} of cluster {cluster:?}; take it out of one of them",
                job = job.as_str()
            ),
            stalled: true,
        }),
    }
}
