//! Gives back what dead pools held, and forgets them.
//!
//! The job types that the dead were seen to hold something of are settled, and the pools forgotten, in one round trip:
//! its scripts run in order, and the last ones refuse each pool of which anything is left. That is so where a pool took
//! another job after the observation: then all that it can take is settled too, which its heartbeat tells. What was
//! judged is carried to Redis: where a heartbeat moved, or pools are there that nobody named, nothing of that job type
//! is changed, and the caller observes anew. A crash at any point leaves what the next pass completes.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::gocraft_work::fence::{FenceOp, Fenced};
use crate::protocol::gocraft_work::forget::Forgotten;
use crate::protocol::gocraft_work::settle::{CoveredPool, DeadPool, ENTRIES_PER_RUN, Report, Settled};
use crate::protocol::gocraft_work::{GocraftWork, ScriptError};
use crate::protocol::{JobTypeName, Observation, PoolId};
use crate::redis::{Call, Value};

/// Dead pools that one run names; the others count as covered in it.
const DEAD_PER_RUN: usize = 100;
/// Scripts in one round trip: at 5 ms each well within the bound of an answer.
const RUNS_PER_TRIP: usize = 100;
/// Round trips of one call; what is left then is left to the next pass.
const TRIPS: usize = 1_000;

/// What a reaping did, and what it could not do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reaped {
    /// By dead pool.
    pub pools: BTreeMap<PoolId, ReapedPool>,
    /// Counts that were wrong beyond what the dead held, by job type.
    pub repaired: BTreeMap<JobTypeName, Report>,
    /// Dead pools whose heartbeat was not what was judged, and pools that nobody named: observe anew.
    pub look_again: BTreeSet<PoolId>,
    /// Job types that could not be settled, and why.
    pub failed: BTreeMap<JobTypeName, ScriptError>,
}

impl Reaped {
    /// Whether all was done: nothing to look at again, nothing failed, every pool forgotten.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.look_again.is_empty() && self.failed.is_empty() && self.pools.values().all(|pool| pool.forgotten)
    }
}

/// What one dead pool gave back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReapedPool {
    /// Jobs that went back to their queues.
    pub jobs: u64,
    /// Locks that were freed.
    pub locks: u64,
    /// Whether nothing is left of it in Redis.
    pub forgotten: bool,
    /// Whether that is this reaping's doing, and not somebody else's before.
    pub forgotten_by_us: bool,
}

/// Settles and forgets dead pools; without dead ones it audits: counts are set to what runs.
///
/// `observation` is what the verdicts were made of: all its pools that are not dead are covered. `stranded` are entries
/// that nothing runs, by job type and living pool.
pub async fn reap(
    work: &GocraftWork,
    observation: &Observation,
    dead: &[DeadPool],
    stranded: &BTreeMap<(JobTypeName, PoolId), u64>,
) -> Result<Reaped, ScriptError> {
    let mut reaped = Reaped::default();
    reaped.pools.extend(dead.iter().map(|pool| (pool.id.clone(), ReapedPool::default())));
    let known = known(observation, dead);
    let settling = Settling { work, observation, dead, stranded, known: known.iter().cloned().collect() };
    if dead.is_empty() {
        settling.run(settling.runs(&known), &mut reaped).await?;
        return Ok(reaped);
    }
    let mut steps = settling.runs(&held(observation, dead));
    steps.extend(settling.goodbyes(dead));
    settling.run(steps, &mut reaped).await?;
    if reaped.look_again.is_empty() {
        let forgotten = |pool: &DeadPool| reaped.pools.get(&pool.id).is_some_and(|pool| pool.forgotten);
        let remaining: Vec<DeadPool> = dead.iter().filter(|pool| !forgotten(pool)).cloned().collect();
        if !remaining.is_empty() {
            let mut steps = settling.runs(&within_reach(observation, &remaining, &known));
            steps.extend(settling.goodbyes(&remaining));
            settling.run(steps, &mut reaped).await?;
        }
    }
    Ok(reaped)
}

/// All known job types.
fn known(observation: &Observation, dead: &[DeadPool]) -> BTreeSet<JobTypeName> {
    let beats = dead.iter().filter_map(|pool| observation.pools.get(&pool.id)?.heartbeat.as_ref());
    let told = beats.flat_map(|beat| beat.job_names.iter().cloned());
    observation.job_types.keys().cloned().chain(told).collect()
}

/// The job types of which a dead pool was seen to have a list or a lock count.
fn held(observation: &Observation, dead: &[DeadPool]) -> BTreeSet<JobTypeName> {
    let seen = observation.job_types.iter().filter(|(_, seen)| {
        dead.iter().any(|pool| seen.lock_info.contains_key(&pool.id) || seen.in_progress.contains_key(&pool.id))
    });
    seen.map(|(name, _)| name.clone()).collect()
}

/// The job types that these pools may hold something of by now: those seen, and those that their heartbeats name, since
/// a pool takes no others. A pool without a heartbeat may have taken any.
fn within_reach(observation: &Observation, pools: &[DeadPool], known: &BTreeSet<JobTypeName>) -> BTreeSet<JobTypeName> {
    let mut job_types = held(observation, pools);
    for pool in pools {
        match observation.pools.get(&pool.id).and_then(|seen| seen.heartbeat.as_ref()) {
            Some(beat) => job_types.extend(beat.job_names.iter().cloned()),
            None => return known.clone(),
        }
    }
    job_types
}

struct Settling<'a> {
    work: &'a GocraftWork,
    observation: &'a Observation,
    dead: &'a [DeadPool],
    stranded: &'a BTreeMap<(JobTypeName, PoolId), u64>,
    known: Vec<JobTypeName>,
}

/// One script to run.
enum Step<'a> {
    /// Settles a job type, naming the dead from an index on.
    Settle { job_type: JobTypeName, from: usize },
    /// Forgets pools.
    Forget { pools: &'a [DeadPool], call: Call },
}

impl<'a> Settling<'a> {
    fn runs<'b>(&self, job_types: &BTreeSet<JobTypeName>) -> Vec<Step<'b>> {
        let firsts: Vec<usize> = (0..self.dead.len().max(1)).step_by(DEAD_PER_RUN).collect();
        let of = |job_type: &JobTypeName| {
            let job_type = job_type.clone();
            firsts.clone().into_iter().map(move |from| Step::Settle { job_type: job_type.clone(), from })
        };
        job_types.iter().flat_map(of).collect()
    }

    fn goodbyes<'b>(&self, pools: &'b [DeadPool]) -> Vec<Step<'b>> {
        let calls = self.work.forget_calls(pools, &self.known);
        calls.into_iter().map(|(pools, call)| Step::Forget { pools, call }).collect()
    }

    /// Runs all steps in their order, and again the ones that have to go on.
    async fn run(&self, mut steps: Vec<Step<'_>>, reaped: &mut Reaped) -> Result<(), ScriptError> {
        let mut fence_advanced = false;
        for _ in 0..TRIPS {
            if steps.is_empty() {
                return Ok(());
            }
            let later = steps.split_off(steps.len().min(RUNS_PER_TRIP));
            let calls = steps.iter().map(|step| self.call(step)).collect();
            let (answers, _) = self.work.client().run_all(calls).await?;
            let mut again = Vec::new();
            let mut unfenced = false;
            for (step, answer) in steps.into_iter().zip(answers) {
                match self.take(&step, answer.map_err(ScriptError::from), reaped) {
                    Ok(true) => {}
                    Ok(false) => again.push(step),
                    Err(ScriptError::Fenced(Fenced::Unfenced)) if !fence_advanced => {
                        unfenced = true;
                        again.push(step);
                    }
                    Err(error) => return Err(error),
                }
            }
            if unfenced {
                self.work.fence(FenceOp::Advance).await?;
                fence_advanced = true;
            }
            again.extend(later);
            steps = again;
        }
        Ok(())
    }

    fn call(&self, step: &Step<'_>) -> Call {
        let (job_type, from) = match step {
            Step::Settle { job_type, from } => (job_type, *from),
            Step::Forget { call, .. } => return call.clone(),
        };
        let named = self.named(from);
        let is_named: BTreeSet<&PoolId> = named.iter().map(|pool| &pool.id).collect();
        let others = self.dead.iter().map(|pool| &pool.id).filter(|id| !self.observation.pools.contains_key(*id));
        let covered: Vec<CoveredPool> = self
            .observation
            .pools
            .keys()
            .chain(others)
            .filter(|id| !is_named.contains(id))
            .map(|id| {
                let stranded = self.stranded.get(&(job_type.clone(), id.clone())).copied().unwrap_or(0);
                CoveredPool { id: id.clone(), stranded }
            })
            .collect();
        self.work.settle_call(job_type, named, &covered, ENTRIES_PER_RUN)
    }

    fn named(&self, from: usize) -> &'a [DeadPool] {
        let rest = self.dead.get(from..).unwrap_or_default();
        &rest[..rest.len().min(DEAD_PER_RUN)]
    }

    /// Takes in an answer; `false` where the step has to run again.
    fn take(
        &self,
        step: &Step<'_>,
        answer: Result<Value, ScriptError>,
        reaped: &mut Reaped,
    ) -> Result<bool, ScriptError> {
        let (job_type, from) = match step {
            Step::Settle { job_type, from } => (job_type, *from),
            Step::Forget { pools, .. } => {
                for (pool, state) in GocraftWork::parse_forgotten(answer?, pools)? {
                    match state {
                        Forgotten::Forgotten | Forgotten::Gone => {
                            let reaped = reaped.pools.entry(pool).or_default();
                            reaped.forgotten = true;
                            reaped.forgotten_by_us |= state == Forgotten::Forgotten;
                        }
                        Forgotten::Moved => {
                            reaped.look_again.insert(pool);
                        }
                        Forgotten::Remains => {}
                    }
                }
                return Ok(true);
            }
        };
        match answer.and_then(GocraftWork::parse_settled) {
            Ok(Settled::Done(report)) => {
                count(job_type, self.named(from), &report, reaped);
                return Ok(report.left == 0);
            }
            Ok(Settled::Moved(pools) | Settled::LookAgain(pools)) => reaped.look_again.extend(pools),
            Err(fenced @ ScriptError::Fenced(_)) => return Err(fenced),
            Err(error) => {
                reaped.failed.insert(job_type.clone(), error);
            }
        }
        Ok(true)
    }
}

fn count(job_type: &JobTypeName, named: &[DeadPool], report: &Report, reaped: &mut Reaped) {
    for (pool, (jobs, locks)) in named.iter().zip(&report.by_dead) {
        let sum = reaped.pools.entry(pool.id.clone()).or_default();
        sum.jobs = sum.jobs.saturating_add(*jobs);
        sum.locks = sum.locks.saturating_add(*locks);
    }
    if report.repaired > 0 {
        reaped.repaired.insert(job_type.clone(), report.clone());
    }
}
