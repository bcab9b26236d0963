//! What a keeper remembers to report, and its reporting: metrics on every replica, status and Events on the one that
//! leads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::access;
use super::background::Done;
use super::events::{self, Notice, Sent};
use super::keeper::Keeper;
use super::report::{self, Due, Outcome, WRITE_BOUND};
use super::status::{Facts, Problem, State, status};
use super::unresponsive::unresponsive;
use crate::api::job_queue::JobQueue;
use crate::api::status::{JobQueueStatus, LastReap, PoolCounts};
use crate::metrics::{Metrics, QueueLabels};
use crate::protocol::{JobTypeName, Observation, PoolId};
use crate::reaper::judge::Judgement;
use crate::reaper::verdict::Proof;

/// Entries of the record that are read at once.
const RECORD_STEP: usize = 500;
/// How long the first word from Redis about new caps may take before the status says that it is awaited.
const FIRST_WORD: Duration = Duration::from_secs(2);
/// After a write that failed.
const RETRY: Duration = Duration::from_secs(3);

/// What a keeper reports, and what it has reported.
pub struct Reporter {
    pub(super) observation: Option<Arc<Observation>>,
    pub(super) judgement: Judgement,
    looked_at: Option<Instant>,
    /// The status as the API server has it, as far as we know.
    written: JobQueueStatus,
    written_at: Option<Instant>,
    next: Option<JobQueueStatus>,
    due_at: Option<Instant>,
    writing: bool,
    telling: bool,
    /// The record was read up to here; empty: not yet.
    recorded_through: String,
    totals_told: Option<BTreeMap<String, i64>>,
    last_reap: Option<LastReap>,
    would_reap: BTreeSet<PoolId>,
    notices: Vec<Notice>,
    pub(super) shown: BTreeSet<JobTypeName>,
    /// Whether the last look's numbers are not shown yet.
    pub(super) unshown: bool,
    /// Proofs that were counted.
    pub(super) proofs: BTreeSet<Arc<str>>,
    /// Failures that were counted.
    pub(super) failures: BTreeSet<Arc<str>>,
}

impl Reporter {
    /// A reporter that knows what the API server has.
    #[must_use]
    pub fn new(queue: &JobQueue) -> Self {
        let written = queue.status.clone().unwrap_or_default();
        Self {
            observation: None,
            judgement: Judgement::default(),
            looked_at: None,
            recorded_through: written.recorded_through.clone().unwrap_or_default(),
            last_reap: written.last_reap.clone(),
            written,
            written_at: None,
            next: None,
            due_at: None,
            writing: false,
            telling: false,
            totals_told: None,
            would_reap: BTreeSet::new(),
            notices: Vec::new(),
            shown: BTreeSet::new(),
            unshown: false,
            proofs: BTreeSet::new(),
            failures: BTreeSet::new(),
        }
    }

    /// Takes in a look.
    pub fn looked(&mut self, observation: Arc<Observation>, judgement: Judgement) {
        if self.recorded_through.is_empty() {
            // What was recorded before anybody looked after this resource is not its own.
            self.recorded_through = format!("{}-0", observation.redis_time.0 * 1000);
        }
        self.would_reap.retain(|pool| judgement.dead.contains_key(pool));
        self.observation = Some(observation);
        self.unshown = true;
        self.judgement = judgement;
        self.looked_at = Some(Instant::now());
    }

    /// Forgets what was seen: it was another Redis.
    pub fn forget_looks(&mut self) {
        self.observation = None;
        self.judgement = Judgement::default();
        self.looked_at = None;
    }

    /// The last look.
    #[must_use]
    pub fn observation(&self) -> Option<Arc<Observation>> {
        self.observation.clone()
    }

    /// Dead pools that are left alone because only observing is asked for: told once each.
    pub fn would_reap(&mut self, dead: &BTreeMap<PoolId, Proof>) {
        for (pool, proof) in dead {
            if self.would_reap.insert(pool.clone()) {
                info!(%pool, proof = proof.name(), "would reap: {}", proof.describe());
                self.notices.push(Notice {
                    warning: false,
                    reason: events::reason::WOULD_REAP,
                    action: "Observe".into(),
                    pod: proof.place().map(|place| place.pod.to_string()),
                    note: format!(
                        "worker pool {pool} is dead: {}; with reaping.mode Observe it is left alone",
                        proof.describe()
                    ),
                });
            }
        }
    }

    /// Has an Event made of something that this replica did.
    pub fn notice(&mut self, notice: Notice) {
        self.notices.push(notice);
    }

    /// Whether pools of this queue's pods were left at the first look after their pods had ended.
    #[must_use]
    pub fn pools_left_since(&self, ended: Option<Instant>) -> bool {
        match (ended, self.looked_at) {
            (Some(ended), Some(looked)) if looked > ended => {
                !self.judgement.dead.is_empty() || !self.judgement.pods_of.is_empty()
            }
            _ => true,
        }
    }

    /// Waits until a status that had to wait is due.
    pub async fn due(&self) {
        match self.due_at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Takes in what came of a write.
    pub fn written(&mut self, outcome: Outcome) {
        self.writing = false;
        let next = self.next.take();
        match outcome {
            Outcome::Written => {
                self.written = next.unwrap_or_default();
                self.written_at = Some(Instant::now());
            }
            Outcome::NotLeading => {}
            Outcome::Failed(error) => {
                warn!(error, "the status could not be written; trying again");
                // Nothing is urgent that can't be written.
                self.written_at = None;
                self.due_at = Some(Instant::now() + RETRY);
            }
        }
    }

    /// A task of ours may have failed without a word: nothing is under way any more.
    pub fn begin_anew(&mut self) {
        (self.writing, self.telling) = (false, false);
        self.totals_told = None;
        self.due_at = Some(Instant::now() + RETRY);
    }

    /// Takes in what came of sending Events.
    pub fn events_sent(&mut self, sent: Sent) {
        self.telling = false;
        if !sent.through.is_empty() {
            self.recorded_through = sent.through;
        }
        if sent.last_reap.is_some() {
            self.last_reap = sent.last_reap;
        }
        if !sent.complete {
            self.totals_told = None;
        }
    }

    /// Drops this queue's numbers.
    pub fn forget_metrics(&self, metrics: &Metrics, labels: &QueueLabels) {
        metrics.forget_jobs(labels, self.shown.iter().map(JobTypeName::as_str));
        metrics.forget_queue(labels, &self.proofs, &self.failures);
    }
}

impl Keeper {
    /// Has new entries of the record made into Events, if this replica leads and there are any.
    pub(super) fn read_record(&mut self) {
        let Some(link) = &self.link else { return };
        let reporter = &mut self.reporter;
        let Some(observation) = &reporter.observation else { return };
        if !self.context.leads() {
            reporter.totals_told = None;
            reporter.notices.clear();
            return;
        }
        let news = reporter.totals_told.as_ref() != Some(&observation.totals);
        if reporter.telling || (!news && reporter.notices.is_empty()) {
            return;
        }
        reporter.telling = true;
        reporter.totals_told = Some(observation.totals.clone());
        let mut notices = std::mem::take(&mut reporter.notices);
        let (work, context, after) = (link.work.clone(), self.context.clone(), reporter.recorded_through.clone());
        let about: ObjectReference = self.queue.object_ref(&());
        self.background.spawn(async move {
            let queue = work.speaker().field.clone();
            let Ok(Ok((entries, through))) = timeout(WRITE_BOUND, work.read_record(&after, RECORD_STEP)).await else {
                return Done::Events(Sent { through: String::new(), last_reap: None, complete: false });
            };
            let (told, last_reap) = events::notices(&entries, &queue);
            notices.extend(told);
            let sent = timeout(WRITE_BOUND, events::send(&context.recorder, &about, &notices)).await;
            if !matches!(sent, Ok(Ok(()))) {
                warn!(events = notices.len(), "Events could not be sent");
            }
            Done::Events(Sent { through, last_reap, complete: entries.len() < RECORD_STEP })
        });
    }

    /// Shows metrics, and writes the status where that is due and ours to do.
    pub(super) fn report(&mut self) {
        self.show_metrics();
        if !self.context.leads() {
            // Whoever led meanwhile has written; what we know of it is what the watch says.
            if let Some(status) = &self.queue.status {
                self.reporter.written.clone_from(status);
            }
            self.reporter.written_at = None;
            self.reporter.due_at = None;
            if let Some(told) = &self.reporter.written.recorded_through {
                self.reporter.recorded_through.clone_from(told);
            }
            if self.reporter.written.last_reap.is_some() {
                self.reporter.last_reap.clone_from(&self.reporter.written.last_reap);
            }
            return;
        }
        if self.reporter.writing {
            // What came of it wakes the keeper.
            self.reporter.due_at = None;
            return;
        }
        if self.reporter.due_at.is_some_and(|due| due > Instant::now()) && !self.is_urgent() {
            return;
        }
        let next = self.next_status();
        if let Some(wait) = self.awaits_first_word() {
            self.reporter.due_at = Some(wait);
            return;
        }
        let since = self.reporter.written_at.map(|at| at.elapsed());
        match report::due(&self.reporter.written, &next, since) {
            Due::Never => self.reporter.due_at = None,
            Due::After(wait) => self.reporter.due_at = Some(Instant::now() + wait),
            Due::Now => {
                self.reporter.due_at = None;
                self.reporter.writing = true;
                self.reporter.next = Some(next.clone());
                let (context, labels) = (self.context.clone(), self.labels.clone());
                self.background.spawn(async move {
                    context.budget.turn().await;
                    if !context.leads() {
                        return Done::Written(Outcome::NotLeading);
                    }
                    let write = report::write(&context.client, &labels.namespace, &labels.jobqueue, &next);
                    Done::Written(match timeout(WRITE_BOUND, write).await {
                        Ok(Ok(())) => Outcome::Written,
                        Ok(Err(error)) => Outcome::Failed(access::api_error(&error)),
                        Err(_) => Outcome::Failed("no answer in time".into()),
                    })
                });
            }
        }
    }

    /// Until when a status waits for the first word from Redis about new caps: what takes milliseconds must not show
    /// as a queue that is not ready.
    fn awaits_first_word(&self) -> Option<Instant> {
        let until = self.caps.pending_since + FIRST_WORD;
        let known = self.reporter.written.observed_generation.is_some();
        let pending = matches!(self.caps.state, State::Pending) && self.link.is_some() && self.halt.is_none();
        (known && pending && until > Instant::now()).then_some(until)
    }

    /// Whether a status that waits for its time now says something that can't wait. A write that failed is not urgent.
    fn is_urgent(&self) -> bool {
        report::due(&self.reporter.written, &self.next_status(), self.reporter.written_at.map(|at| at.elapsed()))
            == Due::Now
            && self.reporter.written_at.is_some()
    }

    fn next_status(&self) -> JobQueueStatus {
        let judgement = &self.reporter.judgement;
        let own_types = self.own_types();
        let caps = match self.caps.others.split_first() {
            Some((first, rest)) => {
                let message = rest.iter().fold(first.message.clone(), |all, one| format!("{all}; {}", one.message));
                State::Bad(Problem { message, ..first.clone() })
            }
            None => self.caps.state.clone(),
        };
        let facts = Facts {
            generation: self.queue.metadata.generation.unwrap_or(0),
            now: Timestamp::now(),
            halt: self.halt,
            redis: &self.redis,
            caps: &caps,
            workers: &self.workers,
            observation: self.reporter.observation.as_deref(),
            own_types: &own_types,
            mismatches: &self.mismatches,
            pools: PoolCounts {
                living: judgement.living.len() as i32,
                undecided: judgement.undecided.len() as i32,
                dead: judgement.dead.len() as i32,
            },
            unresponsive: unresponsive(judgement),
            scaling: self.scales().then(|| (self.scaler.state(), self.scaler.status())),
            last_reap: self.reporter.last_reap.clone(),
            recorded_through: Some(self.reporter.recorded_through.clone()).filter(|id| !id.is_empty()),
        };
        status(&facts, &self.reporter.written)
    }
}
