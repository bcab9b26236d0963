//! Sizes a queue's workers: after every look it is decided how many there should be, and that is carried out in the
//! [background](super::background). Every replica of the operator decides, so that a new leader knows what was enough
//! lately; only the leader writes.

mod report;

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use tracing::{debug, info, warn};

use super::background::Done;
use super::contention::Contention;
use super::events::{self, Notice};
use super::keeper::Keeper;
use super::scale_facts::{Attribution, holding, kind, rules, unread};
use super::scale_task::{Change, Wanted, by_name, carry_out};
use super::status::{Problem, State};
use super::wake::{DUE_SOON, Wake, due_in};
use super::workers;
use crate::api::condition::reason;
use crate::metrics::ScaleLabels;
use crate::protocol::Observation;
use crate::reaper::judge::Judgement;
use crate::reaper::owner::ResolvedTarget;
use crate::scaling::apply::{Outcome, ScaleError};
use crate::scaling::rivals::{Claim, Claimant, TargetKey};
use crate::scaling::{Decision, Facts, History, Step, decide, runnable};

/// A rollout is asked about again after this time.
const ROLLOUT_AGAIN: Duration = Duration::from_secs(5);
/// What is lowered or marked follows from a look whose answer is no older than this.
const FRESH: Duration = Duration::from_secs(1);
/// Time between rounds of marks: which pods are busy changes all the time where jobs are short.
const MARKS_APART: Duration = Duration::from_secs(1);
/// How soon it is looked again at what had to wait.
const AFTER_WAITING: Duration = Duration::from_millis(100);
/// While it is not known whether another autoscaler scales the target.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// When the pods are not as many as the target was seen to ask for, it is read again after this time.
const DOUBTFUL: Duration = Duration::from_secs(5);

/// What a keeper knows of scaling.
#[derive(Default)]
pub struct Scaler {
    history: Option<History>,
    pub(super) claim: Option<Claim>,
    decision: Option<Decision>,
    /// What is to be written, and when the look was begun that says so.
    wanted: Option<(Wanted, Instant)>,
    problem: Option<Problem>,
    failure: Option<Problem>,
    /// What can't be counted, though the rest is scaled for.
    unread: Option<Problem>,
    concurrency: Option<u32>,
    last_scale: Option<Timestamp>,
    rolling_out_until: Option<Instant>,
    /// Listens while there is nothing to do.
    pub(super) wake: Wake,
    contention: Contention,
    /// When the target's replicas were last written, and when the last read of them was begun.
    wrote: Option<Instant>,
    pub(super) target_asked: Option<Instant>,
    /// The replicas that were asked for last, whatever came of it.
    asked_for: Option<i32>,
    marked: Option<Instant>,
    live_pods: i32,
}

impl Scaler {
    /// What is to be written now. Nothing is lowered by an old look: a pod that was idle then may be busy by now.
    fn fresh(&mut self, now: Instant) -> Option<Wanted> {
        let (wanted, looked) = self.wanted.take()?;
        let raises = matches!(&wanted, Wanted::Replicas(change) if change.to > change.from);
        (raises || now.saturating_duration_since(looked) <= FRESH).then_some(wanted)
    }
}

impl Keeper {
    /// Whether this resource sizes its workers now.
    pub(super) fn scales(&self) -> bool {
        self.queue.spec.scaling.is_some() && self.halt.is_none()
    }

    /// Claims the target, or gives it up, as the resource says.
    pub(super) fn claim_target(&mut self) {
        let target = workers::scale_target(&self.queue).filter(|_| self.scales());
        let Some(target) = target else {
            self.scaler = Scaler { last_scale: self.scaler.last_scale, ..Scaler::default() };
            return;
        };
        let key = TargetKey::new(&self.labels.namespace, &target.api_version, &target.kind, &target.name);
        if self.scaler.claim.as_ref().is_none_or(|claim| *claim.target() != key) {
            let claimant = Claimant {
                created_at: self.queue.creation_timestamp().map_or(0, |time| time.0.as_second()),
                name: self.queue.name_any(),
                uid: self.queue.uid().unwrap_or_default(),
            };
            let claim = self.context.rivals.claim(key, claimant);
            self.scaler = Scaler { claim: Some(claim), last_scale: self.scaler.last_scale, ..Scaler::default() };
        }
    }

    /// Decides after a look that was begun at `began`, and has the decision carried out. The answer is how long to wait
    /// for the next look, no longer than `next`.
    pub(super) fn scale(
        &mut self,
        began: Instant,
        observation: &Observation,
        judgement: &Judgement,
        next: Duration,
    ) -> Duration {
        let Some(spec) = self.queue.spec.scaling.clone().filter(|_| self.scales()) else { return next };
        self.scaler.wanted = None;
        let types = self.all_own_types();
        self.scaler.unread = unread(observation, &types);
        let attribution = Attribution::new(observation, judgement, &self.pods);
        let mut job_types = attribution.job_types(&types);
        if !self.context.observe_only {
            holding(&mut job_types, &self.caps.desired);
        }
        let (pods, seen) = (attribution.pods(&self.pods), attribution.concurrency());
        let idle = job_types.iter().all(|one| one.running == 0 && runnable(one) == 0);
        let empty = job_types.iter().filter(|one| one.waiting == 0).map(|one| one.name.clone());
        self.listen(idle.then(|| empty.collect()));
        let concurrency = self.concurrency(seen, observation);
        self.scaler.problem = self.scaling_problem();
        let awaited = self.scaler.problem.as_ref().is_some_and(|one| one.reason == reason::LOOKING_FOR_AUTOSCALERS);
        let next = if awaited { next.min(ASK_AGAIN) } else { next };
        let Some(target) = self.target.clone() else { return next };
        self.doubt_target(target.replicas);
        let rules = rules(&spec);
        let facts = Facts {
            job_types: &job_types,
            pods: &pods,
            pods_known: self.pods.synced(),
            concurrency,
            current: target.replicas,
            kind: kind(&target),
            rolling_out: self.scaler.rolling_out_until.is_some_and(|until| until > began),
        };
        let history = self.scaler.history.get_or_insert_with(|| History::new(began));
        let decision = decide(&facts, &rules, history, began);
        debug!(desired = decision.desired, step = ?decision.step, "{}", decision.reason);
        let mut next = next.min(decision.next_change.unwrap_or(next).max(DUE_SOON));
        if let Some(due) = due_in(&job_types, observation).filter(|_| idle && facts.current == 0) {
            next = next.min(due);
        }
        if self.scaler.problem.is_none() {
            let wanted = match &decision.step {
                Step::Hold => None,
                Step::Scale(to) => Some(Wanted::Replicas(Box::new(Change {
                    from: target.replicas,
                    to: *to,
                    lower_until: (rules.protect_busy && *to < target.replicas).then(|| Instant::now() + FRESH),
                    name_rival: self.scaler.contention.is_near(began),
                    reason: decision.reason.clone(),
                    decided_on: began,
                    target,
                }))),
                Step::MarkBusy { .. } if self.scaler.marked.is_some_and(|at| at.elapsed() < MARKS_APART) => None,
                Step::MarkBusy { costs } => Some(Wanted::Marks(by_name(costs, &pods))),
            };
            self.scaler.wanted = wanted.map(|wanted| (wanted, Instant::now()));
        }
        self.scaler.decision = Some(decision);
        if self.scaler.wanted.is_some() {
            self.background.scale_when_free();
        } else {
            self.scaler.failure = None;
        }
        next
    }

    /// Jobs that one pod runs at once: as specified, as the heartbeats say, as they said last, or one.
    fn concurrency(&mut self, seen: Option<u32>, observation: &Observation) -> u32 {
        let specified = self.queue.spec.workers.as_ref().and_then(|workers| workers.concurrency);
        if let Some(specified) = specified.and_then(|value| u32::try_from(value).ok()) {
            return specified;
        }
        let remembered = || {
            let own = self.link.as_ref()?.own_claim();
            let claim = observation.claims.iter().find(|claim| {
                claim.cluster == own.cluster && claim.namespace == own.namespace && claim.name == own.name
            })?;
            Some(claim.concurrency).filter(|value| *value > 0)
        };
        self.scaler.concurrency = seen.or(self.scaler.concurrency).or_else(remembered);
        self.scaler.concurrency.unwrap_or(1)
    }

    /// Pods changed: marks may have been seen, or somebody else scales.
    pub(super) fn pods_moved(&mut self) {
        if !self.scales() {
            return;
        }
        let marks = self.scaler.decision.as_ref().is_some_and(|one| matches!(one.step, Step::MarkBusy { .. }));
        if marks {
            self.next_pass = self.next_pass.min(tokio::time::Instant::now() + AFTER_WAITING);
        }
        let Some(target) = &self.target else { return };
        let live = self.live_pods();
        let away = |count: i32| (i64::from(count) - i64::from(target.replicas)).abs();
        if away(live) > away(self.scaler.live_pods) {
            self.background.look_for_target_soon();
        }
        self.scaler.live_pods = live;
    }

    /// Pods that were not asked to go.
    fn live_pods(&self) -> i32 {
        let live =
            self.pods.records().filter(|record| record.gone.is_none() && !record.pod.is_over() && !record.pod.deleting);
        i32::try_from(live.count()).unwrap_or(i32::MAX)
    }

    /// Pods that do not come, or do not go: maybe somebody else scaled the target before they could.
    fn doubt_target(&mut self, replicas: i32) {
        let since = [self.scaler.wrote, self.scaler.target_asked].into_iter().flatten().max();
        if matches!(self.workers, State::Good(_))
            && self.live_pods() != replicas
            && since.is_none_or(|since| since.elapsed() > DOUBTFUL)
        {
            self.background.look_for_target_soon();
        }
    }

    /// The target was read, when it was `before`.
    pub(super) fn target_read(&mut self, before: Option<&ResolvedTarget>) {
        let (Some(before), Some(now)) = (before, &mut self.target) else { return };
        let since = self.scaler.wrote.zip(self.scaler.target_asked);
        if before.uid == now.uid && since.is_some_and(|(wrote, asked)| asked <= wrote) {
            // The answer may be from before our own write.
            now.replicas = before.replicas;
        }
        let now = now.replicas;
        if before.replicas != now && self.target.as_ref().is_some_and(|target| target.uid == before.uid) {
            self.changed_by_other(before.replicas, now);
        }
    }

    /// Somebody else changed the replicas. Only who leads can tell: to all others, that is the leader.
    fn changed_by_other(&mut self, from: i32, to: i32) {
        // A write of ours whose answer was late, or never came.
        let ours = self.scaler.asked_for == Some(to);
        if !ours && self.scaler.decision.is_some() && self.scales() && self.context.leads() {
            info!(from, to, "somebody else changed the replicas");
            self.scaler.contention.note(Instant::now());
            self.background.scale_against_a_rival();
            self.context.rivals.look_again();
        }
    }

    /// Takes in what came of a write of replicas.
    pub(super) fn scaled(&mut self, change: &Change, result: Result<(Outcome, Option<String>), ScaleError>) {
        if self.target.as_ref().is_none_or(|target| target.uid != change.target.uid) {
            return;
        }
        self.next_pass = tokio::time::Instant::now();
        match result {
            Ok((outcome, rival)) => {
                self.scaler.failure = None;
                self.scaler.contention.name(rival);
                match outcome {
                    Outcome::Written => self.wrote_replicas(change),
                    Outcome::Moved { uid, replicas } => self.target_moved(change, &uid, replicas),
                    Outcome::Late => {}
                    Outcome::RollingOut => self.scaler.rolling_out_until = Some(Instant::now() + ROLLOUT_AGAIN),
                    Outcome::Renumbered => self.background.look_for_target(),
                }
            }
            Err(error) => self.scaling_failed(&error),
        }
    }

    fn wrote_replicas(&mut self, change: &Change) {
        if let Some(target) = &mut self.target {
            target.replicas = change.to;
        }
        self.scaler.wrote = Some(Instant::now());
        let up = change.to > change.from;
        if let Some(history) = self.scaler.history.as_mut().filter(|_| up) {
            history.scaled_up(Instant::now(), u32::try_from(change.to - change.from).unwrap_or(0));
        }
        self.scaler.last_scale = Some(Timestamp::now());
        info!(from = change.from, to = change.to, "scaled: {}", change.reason);
        let labels = ScaleLabels {
            namespace: self.labels.namespace.clone(),
            jobqueue: self.labels.jobqueue.clone(),
            direction: if up { "up" } else { "down" }.into(),
        };
        self.context.metrics.scalings.get_or_create(&labels).inc();
        if up {
            let seconds = change.decided_on.elapsed().as_secs_f64();
            self.context.metrics.scale_up_seconds.get_or_create(&self.labels).observe(seconds);
        }
        let target = format!("{} {}", change.target.kind, change.target.name);
        self.reporter.notice(Notice {
            warning: false,
            reason: if up { events::reason::SCALED_UP } else { events::reason::SCALED_DOWN },
            // Events of equal actions are counted up, and only the first one's words are kept.
            action: format!("ScaleTo {}", change.to),
            pod: None,
            note: format!("{target} from {} to {}: {}", change.from, change.to, change.reason),
        });
    }

    fn target_moved(&mut self, change: &Change, uid: &str, replicas: i32) {
        if uid != change.target.uid {
            info!("the scale target was replaced");
            self.target = None;
            self.background.look_for_target();
            return;
        }
        if let Some(target) = &mut self.target {
            target.replicas = replicas;
        }
        // A version that moved on with the same number, and whoever made it what we wanted, are no rivals.
        if replicas != change.from && replicas != change.to {
            self.changed_by_other(change.from, replicas);
        }
    }

    /// Takes in that pods could not be marked, or a target not scaled.
    pub(super) fn scaling_failed(&mut self, error: &ScaleError) {
        warn!(%error, "scaling");
        if matches!(error, ScaleError::NotFound { .. }) {
            self.background.look_for_target();
        }
        self.scaler.failure =
            Some(Problem { reason: error.reason().into(), message: error.to_string(), stalled: error.stalled() });
    }

    /// What a task carries out of the last look. One that has waited since then is looked at again first.
    pub(super) fn scaling_task(&mut self) -> Option<impl Future<Output = Done> + Send + 'static> {
        let any = self.scaler.wanted.is_some();
        let Some(wanted) = self.scaler.fresh(Instant::now()) else {
            if any {
                self.next_pass = self.next_pass.min(tokio::time::Instant::now() + AFTER_WAITING);
            }
            return None;
        };
        match &wanted {
            Wanted::Replicas(change) => self.scaler.asked_for = Some(change.to),
            Wanted::Marks(_) => self.scaler.marked = Some(Instant::now()),
        }
        Some(carry_out(self.context.clone(), self.labels.namespace.to_string(), wanted))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_an_old_look_asked_for_is_not_written() {
        let looked = Instant::now();
        for (age, written) in [(Duration::ZERO, true), (FRESH, true), (FRESH + Duration::from_millis(1), false)] {
            let mut scaler = Scaler { wanted: Some((Wanted::Marks(BTreeMap::new()), looked)), ..Scaler::default() };
            assert_eq!(scaler.fresh(looked + age).is_some(), written, "after {age:?}");
            assert!(scaler.fresh(looked).is_none(), "once");
        }
    }
}
