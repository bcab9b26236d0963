//! Makes an observation out of the script's answers, and says what the next one must ask for.

use std::collections::{BTreeMap, BTreeSet};

use super::due::Head;
use super::{Part, Plan};
use crate::protocol::gocraft_work::heartbeat;
use crate::protocol::gocraft_work::reply::Reply;
use crate::protocol::{ConnectionId, EpochSeconds, JobTypeName, JobTypeSeen, Observation, PoolId};
use crate::redis::{Failure, Value};

/// An observation in the making.
pub(super) struct Reading<'a> {
    observation: Observation,
    known_jobs: Option<Vec<JobTypeName>>,
    sets: Option<[Head; 2]>,
    /// What it names is not kept a second time.
    plan: &'a Plan,
}

/// What one round of scripts answered.
pub(super) struct Answer {
    pub(super) observation: Observation,
    /// The job types that Redis names.
    pub(super) known_jobs: Vec<JobTypeName>,
    /// The beginnings of `scheduled` and `retry`, where they were asked for.
    pub(super) sets: Option<[Head; 2]>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(connection: ConnectionId, plan: &'a Plan) -> Self {
        let observation = Observation { connection, ..Observation::default() };
        Self { observation, known_jobs: None, sets: None, plan }
    }

    /// Adds the answer of one script, which was asked for these pools and this part.
    pub(super) fn add(&mut self, pools: &BTreeSet<PoolId>, part: &Part, answer: Value) -> Result<(), Failure> {
        let reply = Reply::new("observe", answer);
        let shape = reply.unexpected("what was asked for");
        let mut parts = reply.parts()?;
        let (Some(frame), Some(beats), Some(types), Some(lengths)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(shape);
        };
        if matches!(frame.value, Value::Array(_)) {
            self.frame(frame)?;
        }
        let beats = beats.parts()?;
        let types = types.parts()?;
        let lengths = lengths.parts()?;
        if beats.len() != pools.len() || types.len() != part.job_types.len() || lengths.len() != part.lists.len() {
            return Err(shape);
        }
        for (pool, beat) in pools.iter().zip(beats) {
            if let Some(beat) = parse_beat(self.plan, beat)? {
                self.observation.pools.entry(pool.clone()).or_default().heartbeat = Some(Box::new(beat));
            }
        }
        for (name, seen) in part.job_types.iter().zip(types) {
            self.observation.job_types.insert(name.clone(), Box::new(parse_type(self.plan, seen)?));
        }
        for ((name, pool), length) in part.lists.iter().zip(lengths) {
            let Some(seen) = self.observation.job_types.get_mut(name) else { continue };
            match length.value {
                Value::Int(0) => {}
                Value::Int(length) => {
                    seen.in_progress.insert(pool.clone(), length.max(0).unsigned_abs());
                }
                _ => seen.spoiled = length.text()?,
            }
        }
        Ok(())
    }

    fn frame(&mut self, frame: Reply) -> Result<(), Failure> {
        let shape = frame.unexpected("a frame");
        let mut parts = frame.parts()?;
        let mut next = || parts.next().ok_or_else(|| shape.clone());
        let observation = &mut self.observation;
        observation.redis_time = EpochSeconds(next()?.number()?.unwrap_or_default());
        for pool in next()?.texts()? {
            observation.pools.entry(pool_id(self.plan, pool)).or_default().listed = true;
        }
        self.known_jobs = Some(next()?.texts()?.into_iter().map(Into::into).collect());
        for (pool, text) in next()?.pairs()? {
            // A binding that cannot be read is none: the pool is bound anew, or silence decides.
            if let Ok(binding) = serde_json::from_str(&text) {
                observation.bindings.insert(pool_id(self.plan, pool), binding);
            }
        }
        for (pool, score) in next()?.pairs()? {
            let at = score.parse::<f64>().unwrap_or_default() as i64;
            observation.reaped.insert(pool.into(), EpochSeconds(at));
        }
        let claims = next()?.pairs()?;
        observation.claims = claims.iter().filter_map(|(_, text)| serde_json::from_str(text).ok()).collect();
        for (name, value) in next()?.pairs()? {
            observation.totals.insert(name, value.parse().unwrap_or_default());
        }
        let sets = next()?;
        if matches!(sets.value, Value::Array(_)) {
            let heads: Vec<Head> = sets.parts()?.map(Head::parse).collect::<Result<_, _>>()?;
            self.sets = Some(<[Head; 2]>::try_from(heads).map_err(|_| shape)?);
        }
        Ok(())
    }

    /// The answer, when all parts were added.
    pub(super) fn finish(self) -> Result<Answer, Failure> {
        let Some(known_jobs) = self.known_jobs else {
            return Err(Failure::unexpected("script observe answered without a frame"));
        };
        let mut observation = self.observation;
        // Ids known only from counts or lists.
        let held: BTreeSet<PoolId> = observation
            .job_types
            .values()
            .flat_map(|seen| seen.lock_info.keys().chain(seen.in_progress.keys()))
            .cloned()
            .collect();
        for pool in held {
            observation.pools.entry(pool).or_default();
        }
        Ok(Answer { observation, known_jobs, sets: self.sets })
    }
}

fn pool_id(plan: &Plan, id: String) -> PoolId {
    plan.pools.get(id.as_str()).cloned().unwrap_or_else(|| id.into())
}

fn parse_beat(plan: &Plan, reply: Reply) -> Result<Option<crate::protocol::Heartbeat>, Failure> {
    if !matches!(reply.value, Value::Array(_)) {
        return Ok(None);
    }
    let fields = reply.parts()?.map(|part| part.text()).collect::<Result<Vec<_>, _>>()?;
    let mut beat = <[Option<String>; 6]>::try_from(fields).ok().and_then(heartbeat::parse);
    for name in beat.iter_mut().flat_map(|beat| &mut beat.job_names) {
        if let Some(known) = plan.job_types.get(name) {
            name.clone_from(known);
        }
    }
    Ok(beat)
}

fn parse_type(plan: &Plan, reply: Reply) -> Result<JobTypeSeen, Failure> {
    if !matches!(reply.value, Value::Array(_)) {
        return Ok(JobTypeSeen { spoiled: reply.text()?, ..JobTypeSeen::default() });
    }
    let shape = reply.unexpected("six parts of a job type");
    let parts: Vec<Reply> = reply.parts()?.collect();
    let [waiting, next_at, lock, info, cap, paused] = <[Reply; 6]>::try_from(parts).map_err(|_| shape)?;
    let mut lock_info = BTreeMap::new();
    let mut fields = info.parts()?;
    while let (Some(pool), Some(count)) = (fields.next(), fields.next()) {
        let count = count.tally()?;
        if count != 0 {
            lock_info.insert(pool_id(plan, pool.text()?.unwrap_or_default()), count);
        }
    }
    Ok(JobTypeSeen {
        waiting: waiting.count()?,
        oldest_enqueued_at: next_at.number()?.map(EpochSeconds),
        lock: lock.tally()?,
        lock_info,
        cap: cap.number()?,
        paused: paused.count()? > 0,
        ..JobTypeSeen::default()
    })
}

/// What an observation shows that a next one must ask for: every pool seen, every job type anybody names, and every
/// in-progress list that a pool may have.
pub(super) fn needed<'a>(observation: &Observation, named: impl Iterator<Item = &'a JobTypeName>) -> Plan {
    let mut plan = Plan { pools: observation.pools.keys().cloned().collect(), ..Plan::default() };
    plan.job_types.extend(named.cloned());
    let mut lists = BTreeSet::new();
    for (pool, seen) in &observation.pools {
        for name in seen.heartbeat.iter().flat_map(|beat| &beat.job_names) {
            plan.job_types.insert(name.clone());
            lists.insert((name.clone(), pool.clone()));
        }
    }
    for (name, seen) in &observation.job_types {
        plan.job_types.insert(name.clone());
        for pool in seen.lock_info.keys().chain(seen.in_progress.keys()) {
            lists.insert((name.clone(), pool.clone()));
        }
    }
    plan.lists = lists.into_iter().collect();
    plan
}
