//! Gives back what dead pools held, and forgets them.
//!
//! All job types concerned are settled in one round trip, portion after portion, and then the pools are forgotten. What
//! was judged is carried to Redis: where a heartbeat moved, or pools are there that nobody named, nothing of that job
//! type is changed, and the caller observes anew. A crash at any point leaves what the next pass completes.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::gocraft_work::fence::{FenceOp, Fenced};
use crate::protocol::gocraft_work::forget::Forgotten;
use crate::protocol::gocraft_work::settle::{CoveredPool, DeadPool, ENTRIES_PER_RUN, Report, Settled};
use crate::protocol::gocraft_work::{GocraftWork, ScriptError};
use crate::protocol::{JobTypeName, Observation, PoolId};

/// Dead pools that one run names; the others count as covered in it.
const DEAD_PER_RUN: usize = 250;
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
    let job_types = concerned(observation, dead);
    let mut reaped = Reaped::default();
    reaped.pools.extend(dead.iter().map(|pool| (pool.id.clone(), ReapedPool::default())));
    let settling = Settling { work, observation, dead, stranded };
    settling.settle(&job_types, &mut reaped).await?;
    if dead.is_empty() {
        return Ok(reaped);
    }
    let all: Vec<JobTypeName> = job_types.into_iter().collect();
    for (pool, state) in work.forget(dead, &all).await? {
        match state {
            Forgotten::Forgotten | Forgotten::Gone => {
                reaped.pools.entry(pool).or_default().forgotten = true;
            }
            Forgotten::Moved => {
                reaped.look_again.insert(pool);
            }
            Forgotten::Remains => {}
        }
    }
    Ok(reaped)
}

/// All known job types: a dead pool may have fetched from any of them, whatever its heartbeat says.
fn concerned(observation: &Observation, dead: &[DeadPool]) -> BTreeSet<JobTypeName> {
    let mut job_types: BTreeSet<JobTypeName> = observation.job_types.keys().cloned().collect();
    for pool in dead {
        if let Some(beat) = observation.pools.get(&pool.id).and_then(|seen| seen.heartbeat.as_ref()) {
            job_types.extend(beat.job_names.iter().cloned());
        }
    }
    job_types
}

struct Settling<'a> {
    work: &'a GocraftWork,
    observation: &'a Observation,
    dead: &'a [DeadPool],
    stranded: &'a BTreeMap<(JobTypeName, PoolId), u64>,
}

/// One run to make: a job type, and which of the dead it names.
#[derive(Debug, Clone)]
struct Run {
    job_type: JobTypeName,
    from: usize,
}

impl Settling<'_> {
    async fn settle(&self, job_types: &BTreeSet<JobTypeName>, reaped: &mut Reaped) -> Result<(), ScriptError> {
        let firsts: Vec<usize> = (0..self.dead.len().max(1)).step_by(DEAD_PER_RUN).collect();
        let mut runs: Vec<Run> = Vec::new();
        for job_type in job_types {
            runs.extend(firsts.iter().map(|&from| Run { job_type: job_type.clone(), from }));
        }
        let mut fence_advanced = false;
        for _ in 0..TRIPS {
            if runs.is_empty() {
                return Ok(());
            }
            let later = runs.split_off(runs.len().min(RUNS_PER_TRIP));
            let calls = runs.iter().map(|run| self.call(run)).collect();
            let (answers, _) = self.work.client().run_all(calls).await?;
            let mut again = Vec::new();
            let mut unfenced = false;
            for (run, answer) in runs.into_iter().zip(answers) {
                match answer.map_err(ScriptError::from).and_then(GocraftWork::parse_settled) {
                    Ok(Settled::Done(report)) => {
                        if report.left > 0 {
                            again.push(run.clone());
                        }
                        self.count(&run, &report, reaped);
                    }
                    Ok(Settled::Moved(pools) | Settled::LookAgain(pools)) => reaped.look_again.extend(pools),
                    Err(ScriptError::Fenced(Fenced::Unfenced)) if !fence_advanced => {
                        unfenced = true;
                        again.push(run);
                    }
                    Err(ScriptError::Fenced(fenced)) => return Err(fenced.into()),
                    Err(error) => {
                        reaped.failed.insert(run.job_type, error);
                    }
                }
            }
            if unfenced {
                self.work.fence(FenceOp::Advance).await?;
                fence_advanced = true;
            }
            again.extend(later);
            runs = again;
        }
        Ok(())
    }

    fn named(&self, run: &Run) -> &[DeadPool] {
        let rest = self.dead.get(run.from..).unwrap_or_default();
        &rest[..rest.len().min(DEAD_PER_RUN)]
    }

    fn call(&self, run: &Run) -> crate::redis::Call {
        let named = self.named(run);
        let is_named: BTreeSet<&PoolId> = named.iter().map(|pool| &pool.id).collect();
        let others = self.dead.iter().map(|pool| &pool.id).filter(|id| !self.observation.pools.contains_key(*id));
        let covered: Vec<CoveredPool> = self
            .observation
            .pools
            .keys()
            .chain(others)
            .filter(|id| !is_named.contains(id))
            .map(|id| {
                let stranded = self.stranded.get(&(run.job_type.clone(), id.clone())).copied().unwrap_or(0);
                CoveredPool { id: id.clone(), stranded }
            })
            .collect();
        self.work.settle_call(&run.job_type, named, &covered, ENTRIES_PER_RUN)
    }

    fn count(&self, run: &Run, report: &Report, reaped: &mut Reaped) {
        for (pool, (jobs, locks)) in self.named(run).iter().zip(&report.by_dead) {
            let sum = reaped.pools.entry(pool.id.clone()).or_default();
            sum.jobs += jobs;
            sum.locks += locks;
        }
        if report.repaired > 0 {
            reaped.repaired.insert(run.job_type.clone(), report.clone());
        }
    }
}
