//! One pass: observe, judge, settle. And the shorter way when only pods changed: judge what was observed last, so that
//! a container's end frees its locks without a read in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tracing::{debug, info, warn};

use super::audit;
use super::keeper::Keeper;
use super::scale_facts::Attribution;
use super::status::{Halt, Problem, State};
use crate::api::condition::reason;
use crate::api::job_queue::ReapingMode;
use crate::metrics::ReapLabels;
use crate::protocol::gocraft_work::settle::{DeadPool, Judged};
use crate::protocol::gocraft_work::{Fenced, ScriptError};
use crate::protocol::{Observation, PoolId};
use crate::reaper::judge::Judgement;
use crate::reaper::pods::Fate;
use crate::reaper::settle::reap;
use crate::reaper::verdict::{Expect, Proof};

/// While there is nothing to do.
const IDLE: Duration = Duration::from_secs(3600);
/// While the resource is being deleted and its Redis is not known.
const LEAVING: Duration = Duration::from_secs(1);
/// While the resource is paused: how often the fence is looked at.
const PAUSED: Duration = Duration::from_secs(15);
/// After something was settled: soon enough to see what it came to.
const SOON: Duration = Duration::from_millis(20);
/// How often in a row.
const HURRY_AT_MOST: u32 = 5;
/// How often lists that nothing names are looked for.
const SWEEP_EVERY: Duration = Duration::from_millis(1900);
/// A worker's end that was seen longer ago than this is not measured: Redis, or we, were away meanwhile.
const MEASURED_WITHIN: Duration = Duration::from_secs(10);

impl Keeper {
    /// Does one pass and decides when the next one is due.
    pub(super) async fn pass(&mut self) {
        self.refresh_pods();
        let result = match (&self.link, self.halt) {
            (None, _) => Ok(IDLE),
            (Some(_), Some(Halt::Paused)) => self.paused_pass().await,
            (Some(_), _) => self.full_pass().await,
        };
        match result {
            Ok(IDLE) => {
                let leaving = self.halt == Some(Halt::Deleting);
                self.next_pass = tokio::time::Instant::now() + if leaving { LEAVING } else { IDLE };
            }
            Ok(next) => self.passed(next),
            Err(ScriptError::Failed(failure)) => self.pass_failed(&failure),
            Err(ScriptError::Fenced(fenced)) => {
                if fenced == Fenced::Held {
                    self.background.confirm_pause();
                }
                self.passed(PAUSED);
                self.caps.state =
                    State::Bad(Problem { reason: reason::FENCED.into(), message: fenced.to_string(), stalled: false });
            }
            Err(error @ ScriptError::Spoiled { .. }) => {
                self.passed(SWEEP_EVERY);
                self.caps.state = State::Bad(Problem {
                    reason: reason::WRONG_KEY_TYPE.into(),
                    message: error.to_string(),
                    stalled: true,
                });
            }
        }
    }

    async fn paused_pass(&mut self) -> Result<Duration, ScriptError> {
        if let Some(link) = &mut self.link
            && !self.context.observe_only
        {
            link.hold_fence().await?;
        }
        Ok(PAUSED)
    }

    async fn full_pass(&mut self) -> Result<Duration, ScriptError> {
        let observe_only = self.context.observe_only;
        let Some(link) = &mut self.link else { return Ok(IDLE) };
        if !observe_only {
            link.open_fence().await?;
            link.claiming.hosts = self
                .pods
                .records()
                .filter(|record| record.gone.is_none())
                .flat_map(|record| record.pod.hosts.iter().map(|host| host.as_str().to_owned()))
                .collect();
            link.claim().await?;
        }
        let began = Instant::now();
        let sweeps = self.last_sweep.is_none_or(|last| last.elapsed() >= SWEEP_EVERY);
        let observation = if sweeps {
            self.last_sweep = Some(began);
            let (seen, found) = tokio::join!(link.observer.observe(&link.work), link.sweep.step(&link.work));
            match found {
                Ok(found) => link.observer.add_lists(found),
                Err(failure) => debug!(%failure, "no look for lists that nothing names"),
            }
            seen?
        } else {
            link.observer.observe(&link.work).await?
        };
        self.context.metrics.passes.get_or_create(&self.labels).inc();
        let observation = Arc::new(observation);
        self.forgotten.clear();
        if self.halt.is_none() {
            self.hold_caps(&observation);
        }
        let judgement = self.judge.look(began, observation.clone(), &self.pods);
        if let (Some(link), Some(seen)) =
            (&mut self.link, Attribution::new(&observation, &judgement, &self.pods).concurrency())
        {
            link.claiming.concurrency = seen;
        }
        let acted = self.act(&observation, &judgement).await?;
        let audited = self.audit(&observation, &judgement).await?;
        // What is settled is looked at again at once, but never in a hot loop.
        self.hurried = if acted || audited { self.hurried + 1 } else { 0 };
        let next = if (1..=HURRY_AT_MOST).contains(&self.hurried) { SOON } else { judgement.next_look };
        self.reporter.looked(observation.clone(), judgement.clone());
        let next = self.scale(began, &observation, &judgement, next);
        self.read_record();
        Ok(next)
    }

    /// Judges anew after pods changed. Only what is certain can come of it.
    pub(super) async fn react(&mut self) {
        self.refresh_pods();
        self.pods_moved();
        if self.halt == Some(Halt::Paused) {
            return;
        }
        let Some(judgement) = self.judge.react(Instant::now(), &self.pods) else { return };
        let Some(observation) = self.reporter.observation() else { return };
        let certain: BTreeMap<PoolId, Proof> = judgement
            .dead
            .iter()
            .filter(|(pool, proof)| proof.is_certain() && !self.forgotten.contains(*pool))
            .map(|(pool, proof)| (pool.clone(), proof.clone()))
            .collect();
        if certain.is_empty() {
            // Something began that must be watched from now on, such as a worker that starts.
            let soon = tokio::time::Instant::now() + judgement.next_look;
            self.next_pass = self.next_pass.min(soon);
            return;
        }
        match self.act(&observation, &Judgement { dead: certain, ..judgement }).await {
            Ok(_) => self.next_pass = tokio::time::Instant::now() + SOON,
            Err(ScriptError::Failed(failure)) => self.pass_failed(&failure),
            Err(error) => warn!(%error, "a dead worker could not be settled; trying again with the next pass"),
        }
    }

    fn may_reap(&self) -> bool {
        !self.context.observe_only && self.queue.spec.reaping.mode == ReapingMode::Enforce
    }

    /// Carries out a judgement. Whether something was changed, or must be looked at again at once.
    async fn act(&mut self, observation: &Observation, judgement: &Judgement) -> Result<bool, ScriptError> {
        let mut again = false;
        if !judgement.dead.is_empty() {
            if self.may_reap() {
                again |= self.reap(observation, &judgement.dead).await?;
            } else {
                self.reporter.would_reap(&judgement.dead);
            }
        }
        let Some(link) = &self.link else { return Ok(false) };
        if self.context.observe_only {
            return Ok(false);
        }
        if !judgement.resurrected.is_empty() {
            let pools: Vec<_> = judgement.resurrected.iter().map(|pool| (pool.clone(), json!({}))).collect();
            for pool in link.work.unreap(&pools).await? {
                warn!(%pool, "a worker that was taken for dead beats again");
            }
        }
        if !judgement.new_bindings.is_empty() || !judgement.stale_bindings.is_empty() {
            let set: Vec<_> =
                judgement.new_bindings.iter().map(|(pool, binding)| (pool.clone(), binding.clone())).collect();
            let drop: Vec<_> = judgement.stale_bindings.iter().cloned().collect();
            link.work.bind(&set, &drop).await?;
        }
        Ok(again)
    }

    async fn reap(&mut self, observation: &Observation, dead: &BTreeMap<PoolId, Proof>) -> Result<bool, ScriptError> {
        let Some(link) = &self.link else { return Ok(false) };
        let began = Instant::now();
        let pools: Vec<DeadPool> = dead.iter().map(|(pool, proof)| dead_pool(pool, proof)).collect();
        let reaped = reap(&link.work, observation, &pools, &BTreeMap::new()).await?;
        let mut given_back = (0, 0);
        for (pool, settled) in &reaped.pools {
            let Some(proof) = dead.get(pool) else { continue };
            given_back = (given_back.0 + settled.jobs, given_back.1 + settled.locks);
            if settled.jobs + settled.locks > 0 || settled.forgotten_by_us {
                info!(%pool, proof = proof.name(), jobs = settled.jobs, locks = settled.locks, forgotten = settled.forgotten, "reaped: {}", proof.describe());
            }
            if settled.forgotten {
                self.forgotten.insert(pool.clone());
            }
            if settled.forgotten_by_us {
                let labels = ReapLabels {
                    namespace: self.labels.namespace.clone(),
                    jobqueue: self.labels.jobqueue.clone(),
                    proof: proof.name().into(),
                };
                self.context.metrics.pools_reaped.get_or_create(&labels).inc();
                self.reporter.proofs.insert(labels.proof);
                if let Some(seen) = self.end_seen(proof).filter(|seen| seen.elapsed() < MEASURED_WITHIN) {
                    self.context.metrics.reap_seconds.get_or_create(&self.labels).observe(seen.elapsed().as_secs_f64());
                }
            }
        }
        self.context.metrics.jobs_requeued.get_or_create(&self.labels).inc_by(given_back.0);
        for (job, error) in &reaped.failed {
            warn!(%job, %error, "a job type could not be settled; the others were");
        }
        debug!(pools = pools.len(), jobs = given_back.0, locks = given_back.1, took = ?began.elapsed(), "settled");
        Ok(reaped.failed.is_empty() || !reaped.look_again.is_empty())
    }

    /// When we saw the end that a proof is about.
    fn end_seen(&self, proof: &Proof) -> Option<Instant> {
        let place = proof.place()?;
        let record = self.pods.get(&place.pod_uid)?;
        match record.fate(&place.container, &place.container_id) {
            Fate::Ended { seen, .. } | Fate::Replaced { seen, .. } | Fate::PodEnded { seen, .. } => Some(seen),
            Fate::Running | Fate::Unknown(_) => None,
        }
    }

    /// Puts counts right that two looks found wrong in the same way.
    async fn audit(&mut self, observation: &Observation, judgement: &Judgement) -> Result<bool, ScriptError> {
        let found = audit::mismatches(observation);
        let lasting = audit::lasting(&self.mismatches, &found);
        self.mismatches = found;
        let open: BTreeSet<&PoolId> = judgement.dead.keys().collect();
        if lasting.is_empty() || !open.is_empty() || !self.may_reap() {
            return Ok(false);
        }
        let Some(link) = &self.link else { return Ok(false) };
        let audited = reap(&link.work, observation, &[], &BTreeMap::new()).await?;
        for (job, report) in &audited.repaired {
            warn!(%job, lock_before = report.lock_before, lock_after = report.lock_after, counts = report.repaired, "counts that did not match the jobs that run were put right");
        }
        Ok(!audited.repaired.is_empty())
    }
}

fn dead_pool(pool: &PoolId, proof: &Proof) -> DeadPool {
    let judged = match proof.expect() {
        Expect::Anything => Judged::Certain,
        Expect::Unmoved(at) => Judged::Silent(at),
        Expect::Absent { listed } => Judged::Absent { listed },
    };
    let mut detail = json!({"proof": proof.name(), "why": proof.describe()});
    if let Some(place) = proof.place() {
        detail["pod"] = json!(&*place.pod);
        detail["container"] = json!(&*place.container);
    }
    DeadPool { id: pool.clone(), judged, detail }
}
