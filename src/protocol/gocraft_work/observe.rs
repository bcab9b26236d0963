//! One atomic read of all that a pass needs, in one round trip.
//!
//! A script must be told the keys that it reads, so the ids of the pass before are kept and named ahead. Only when the
//! answer names others is it asked again at once. Above 5,000 keys the job types are split over several scripts of the
//! same round trip, so that Redis is never blocked for long; each job type stays whole, and so atomic. Where many
//! entries of `scheduled` and `retry` are due and wanted, further round trips follow; see [`due`].

mod due;
mod parse;

use std::collections::BTreeSet;

pub(super) use due::second_of;

use super::{GocraftWork, scripts};
use crate::protocol::{JobTypeName, Observation, PoolId};
use crate::redis::{Call, Failure};

/// Keys of one script, but for a single job type with more.
const KEYS_PER_SCRIPT: usize = 5_000;
/// Round trips of one pass: one; one more when it named others, such as the first of all: sets, then heartbeats and
/// counts, then lists.
const ROUNDS: usize = 4;

/// What one round asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Plan {
    pools: BTreeSet<PoolId>,
    job_types: BTreeSet<JobTypeName>,
    /// Sorted, each once. By far the most of a plan, and kept from pass to pass: as a slice it takes half of a set's room.
    lists: Box<[(JobTypeName, PoolId)]>,
}

/// Job types that go into one script, and their in-progress lists.
#[derive(Debug, Default)]
struct Part {
    job_types: Vec<JobTypeName>,
    lists: Vec<(JobTypeName, PoolId)>,
}

impl Plan {
    fn parts(&self) -> Vec<Part> {
        let mut parts = vec![Part::default()];
        let mut size = 8 + self.pools.len();
        for job_type in &self.job_types {
            let from = self.lists.partition_point(|(name, _)| name < job_type);
            let lists: Vec<_> = self.lists[from..].iter().take_while(|(name, _)| name == job_type).cloned().collect();
            if size + 5 + lists.len() > KEYS_PER_SCRIPT && size > 0 {
                parts.push(Part::default());
                size = 0;
            }
            size += 5 + lists.len();
            if let Some(part) = parts.last_mut() {
                part.job_types.push(job_type.clone());
                part.lists.extend(lists);
            }
        }
        parts
    }

    fn covers(&self, other: &Self) -> bool {
        self.pools.is_superset(&other.pools)
            && self.job_types.is_superset(&other.job_types)
            && other.lists.iter().all(|list| self.lists.binary_search(list).is_ok())
    }
}

/// Observes one namespace, pass after pass.
#[derive(Debug, Default)]
pub struct Observer {
    plan: Plan,
    named: BTreeSet<JobTypeName>,
    /// Where due entries are wanted.
    walks: Option<due::Walks>,
}

impl Observer {
    /// The job types that the resource names: they are observed whether Redis knows them or not.
    pub fn name_job_types(&mut self, named: BTreeSet<JobTypeName>) {
        self.plan.job_types.extend(named.iter().cloned());
        self.named = named;
    }

    /// Whether due entries are to be counted. Where they are not, `scheduled` and `retry` are not read.
    pub fn count_due(&mut self, wanted: bool) {
        self.walks = if wanted { Some(self.walks.take().unwrap_or_default()) } else { None };
    }

    /// In-progress lists that a sweep found: they are observed while they are not empty.
    pub fn add_lists(&mut self, found: impl IntoIterator<Item = (JobTypeName, PoolId)>) {
        let mut lists: BTreeSet<_> = std::mem::take(&mut self.plan.lists).into_iter().collect();
        for (job_type, pool) in found {
            // A job type with such a name has a list of waiting jobs that looks like another's in-progress list.
            let as_type = JobTypeName::from(format!("{job_type}:{pool}:inprogress"));
            if !self.plan.job_types.contains(&as_type) {
                self.plan.job_types.insert(job_type.clone());
                self.plan.pools.insert(pool.clone());
                lists.insert((job_type, pool));
            }
        }
        self.plan.lists = lists.into_iter().collect();
    }

    /// Reads the namespace.
    pub async fn observe(&mut self, work: &GocraftWork) -> Result<Observation, Failure> {
        let mut rounds = 0;
        loop {
            let parse::Answer { mut observation, known_jobs, sets } = self.read(work).await?;
            let needed = parse::needed(&observation, known_jobs.iter().chain(&self.named));
            let asked = std::mem::replace(&mut self.plan, needed);
            rounds += 1;
            if asked.covers(&self.plan) || rounds == ROUNDS {
                // A pool that was not asked for is not a pool without a heartbeat: the next pass shows it.
                observation.pools.retain(|pool, _| asked.pools.contains(pool));
                if let (Some(walks), Some(sets)) = (&mut self.walks, sets) {
                    walks.add_to(&mut observation, sets, work).await;
                }
                return Ok(observation);
            }
        }
    }

    async fn read(&self, work: &GocraftWork) -> Result<parse::Answer, Failure> {
        let parts = self.plan.parts();
        let calls = parts.iter().enumerate().map(|(at, part)| self.call(work, part, at == 0)).collect();
        let (answers, connection) = work.client().run_all(calls).await?;
        let mut reading = parse::Reading::new(connection, &self.plan);
        for (at, (part, answer)) in parts.iter().zip(answers).enumerate() {
            let pools: &BTreeSet<PoolId> = if at == 0 { &self.plan.pools } else { &BTreeSet::new() };
            reading.add(pools, part, answer?)?;
        }
        reading.finish()
    }

    fn call(&self, work: &GocraftWork, part: &Part, whole: bool) -> Call {
        let keys = work.keys();
        let mut all = Vec::new();
        let mut pools = 0;
        if whole {
            all.extend([keys.bindings(), keys.reaped(), keys.claims(), keys.totals()]);
            all.extend([keys.worker_pools(), keys.known_jobs(), keys.scheduled(), keys.retry()]);
            all.extend(self.plan.pools.iter().map(|pool| keys.heartbeat(pool)));
            pools = self.plan.pools.len();
        }
        for name in &part.job_types {
            all.extend([keys.list(name), keys.lock(name), keys.lock_info(name)]);
            all.extend([keys.max_concurrency(name), keys.paused(name)]);
        }
        all.extend(part.lists.iter().map(|(name, pool)| keys.in_progress(name, pool)));
        let counts = [usize::from(whole), pools, part.job_types.len(), usize::from(self.walks.is_some())];
        Call::script(&scripts::OBSERVE, all, counts.map(|count| count.to_string().into_bytes()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_split_between_job_types_only() {
        let job_types: [JobTypeName; 3] = ["a", "b", "c"].map(Into::into);
        let lists = |name: &JobTypeName| {
            let name = name.clone();
            (0..2_400).map(move |pool| (name.clone(), PoolId::from(format!("{pool:024}"))))
        };
        let lists = job_types.iter().flat_map(lists).collect();
        let plan = Plan { job_types: job_types.into(), lists, ..Plan::default() };
        let parts = plan.parts();
        let shapes: Vec<_> = parts.iter().map(|part| (part.job_types.len(), part.lists.len())).collect();
        assert_eq!(shapes, [(2, 4_800), (1, 2_400)]);
    }
}
