//! From what one look showed to the facts that the scaling decision is made of. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::status::Problem;
use crate::api::condition::reason;
use crate::api::job_queue::ScalingSpec;
use crate::protocol::gocraft_work::cap::Desired;
use crate::protocol::gocraft_work::wrong_type::{self, some_of};
use crate::protocol::{JobTypeName, JobTypeSeen, Observation, PoolId};
use crate::reaper::host::HostKey;
use crate::reaper::judge::Judgement;
use crate::reaper::owner::{QueuePods, ResolvedTarget};
use crate::reaper::pods::PodRecord;
use crate::scaling::{JobTypeFacts, PodFacts, PodPhase, Rules, TargetKind, Unread};

/// The rules as the resource has them.
#[must_use]
pub fn rules(spec: &ScalingSpec) -> Rules {
    let positive = |value: i32| u32::try_from(value).ok().filter(|value| *value > 0);
    let seconds = |value: i32| Duration::from_secs(u64::try_from(value).unwrap_or(0));
    Rules {
        min: spec.min_replicas,
        max: spec.max_replicas,
        jobs_per_replica: spec.jobs_per_replica.and_then(positive),
        max_wait: spec.max_wait_seconds.map(seconds),
        stabilization: seconds(spec.scale_down_stabilization_seconds),
        max_up_per_minute: positive(spec.max_scale_up_per_minute),
        protect_busy: spec.protect_busy_pods,
    }
}

/// How a target chooses the pods that go.
#[must_use]
pub fn kind(target: &ResolvedTarget) -> TargetKind {
    match (target.is_apps(), &*target.kind) {
        (true, "Deployment" | "ReplicaSet") => TargetKind::Replicas,
        (true, "StatefulSet") => TargetKind::Ordinal { first: target.first_ordinal },
        _ => TargetKind::Other,
    }
}

/// Which pools' jobs run where, as far as it matters for scaling.
pub struct Attribution<'a> {
    observation: &'a Observation,
    judgement: &'a Judgement,
    /// Pods that work on, by name; others end anyway.
    staying: BTreeSet<&'a str>,
    /// Pods by pool: those that it is bound to or may be, else those that have its host name. What can't be bound, as
    /// where its clock and its kubelet's disagree, runs jobs all the same.
    places: BTreeMap<PoolId, Box<[Arc<str>]>>,
}

impl<'a> Attribution<'a> {
    /// Of one look.
    #[must_use]
    pub fn new(observation: &'a Observation, judgement: &'a Judgement, pods: &'a QueuePods) -> Self {
        let staying = live(pods).filter(|record| !record.pod.deleting).map(|record| &*record.pod.name).collect();
        let mut places = judgement.pods_of.clone();
        for (pool, seen) in &observation.pools {
            let Some(beat) = seen.heartbeat.as_ref().filter(|_| !places.contains_key(pool)) else { continue };
            let host = HostKey::of(&beat.host);
            let found: Box<[Arc<str>]> =
                live(pods).filter(|record| record.pod.hosts.contains(&host)).map(|one| one.pod.name.clone()).collect();
            if !found.is_empty() {
                places.insert(pool.clone(), found);
            }
        }
        Self { observation, judgement, staying, places }
    }

    /// Whether a pool's jobs keep replicas: those of our pods that stay, and of pools that nobody can place. What runs
    /// in a pod that is terminating ends there, and what runs elsewhere needs no replica of ours.
    fn counts(&self, pool: &PoolId) -> bool {
        if self.judgement.dead.contains_key(pool) {
            return false;
        }
        match self.places.get(pool) {
            Some(pods) => pods.iter().any(|pod| self.staying.contains(&**pod)),
            None => self.is_unplaced(pool),
        }
    }

    /// A pool that took jobs before anybody knows where it runs.
    fn is_unplaced(&self, pool: &PoolId) -> bool {
        !self.judgement.dead.contains_key(pool)
            && !self.places.contains_key(pool)
            && self.observation.pools.get(pool).is_none_or(|seen| seen.heartbeat.is_none())
    }

    /// Facts of these job types. What could not be read, or not all of it yet, is one more that holds only what is there.
    #[must_use]
    pub fn job_types(&self, names: &BTreeSet<JobTypeName>) -> Vec<JobTypeFacts> {
        let seen = names.iter().filter_map(|name| Some(self.job_type(name, self.observation.job_types.get(name)?)));
        let set = self.observation.spoiled_sets.first().map(|key| (key.as_str(), Unread::Set));
        let unread = set.or_else(|| self.observation.due_incomplete.then_some(("", Unread::DueEntries)));
        let unread = unread.map(|(name, unread)| JobTypeFacts {
            unread: Some(unread),
            ..self.job_type(&name.into(), &JobTypeSeen::default())
        });
        seen.chain(unread).collect()
    }

    fn job_type(&self, name: &JobTypeName, seen: &JobTypeSeen) -> JobTypeFacts {
        let running = seen
            .in_progress
            .iter()
            .filter(|(pool, _)| self.counts(pool))
            .fold(0_u64, |sum, (_, n)| sum.saturating_add(*n));
        JobTypeFacts {
            name: name.clone(),
            waiting: seen.waiting,
            due: seen.due,
            running,
            cap: seen.cap.and_then(|cap| u64::try_from(cap).ok()).filter(|cap| *cap > 0),
            locks: u64::try_from(seen.lock).unwrap_or(0),
            paused: seen.paused,
            oldest_wait: oldest_wait(seen, self.observation).map(Duration::from_secs),
            unread: seen.spoiled.is_some().then_some(Unread::JobType),
        }
    }

    /// Facts of the pods that there are.
    #[must_use]
    pub fn pods(&self, pods: &QueuePods) -> Vec<PodFacts> {
        let mut jobs: BTreeMap<&str, u64> = BTreeMap::new();
        let mut unplaced = false;
        let mut held: BTreeMap<&PoolId, u64> = BTreeMap::new();
        for (pool, count) in self.observation.job_types.values().flat_map(|seen| &seen.in_progress) {
            *held.entry(pool).or_default() += count;
        }
        for (pool, count) in held.into_iter().filter(|(pool, _)| !self.judgement.dead.contains_key(*pool)) {
            unplaced |= count > 0 && self.is_unplaced(pool);
            for pod in self.places.get(pool).into_iter().flatten() {
                *jobs.entry(pod).or_default() += count;
            }
        }
        let placed: BTreeSet<&str> = self.places.values().flatten().map(|pod| &**pod).collect();
        let facts = |record: &Arc<PodRecord>| {
            let pod = &record.pod;
            PodFacts {
                uid: pod.uid.clone(),
                name: pod.name.clone(),
                running: jobs.get(&*pod.name).copied().unwrap_or(0),
                unsure: unplaced && !placed.contains(&*pod.name) && runs(record),
                phase: phase(record),
                deletion_cost: pod.deletion_cost,
                revision: pod.owner.as_ref().map(|owner| owner.uid.clone()),
            }
        };
        live(pods).map(facts).collect()
    }

    /// Jobs that one pod runs at once: the most that the pools of one pod say together. `None` before the first beat.
    #[must_use]
    pub fn concurrency(&self) -> Option<u32> {
        let mut by_pod: BTreeMap<&str, u32> = BTreeMap::new();
        for (pool, pods) in &self.places {
            let beat = self.observation.pools.get(pool).and_then(|seen| seen.heartbeat.as_ref());
            if let (Some(beat), Some(pod)) = (beat, pods.first().filter(|_| pods.len() == 1)) {
                let sum = by_pod.entry(pod).or_default();
                *sum = sum.saturating_add(beat.concurrency);
            }
        }
        by_pod.into_values().max().filter(|most| *most > 0)
    }
}

/// That keys of these job types, or `scheduled` or `retry`, can't be read, since they have a wrong type.
#[must_use]
pub fn unread(observation: &Observation, names: &BTreeSet<JobTypeName>) -> Option<Problem> {
    let sets = observation.spoiled_sets.iter().map(|key| wrong_type::advice(None, key));
    let keys: Vec<String> = sets.chain(wrong_type::spoiled(observation, names)).collect();
    (!keys.is_empty()).then(|| Problem {
        reason: reason::WRONG_KEY_TYPE.into(),
        message: format!("{}; the number of workers follows what can be read meanwhile", some_of(&keys)),
        stalled: true,
    })
}

/// Counts with the caps and pauses that this queue holds, also while Redis does not have them yet: they are there before
/// a worker is.
pub fn holding(job_types: &mut [JobTypeFacts], held: &[Desired]) {
    for one in job_types {
        let Some(held) = held.iter().find(|held| held.job_type == one.name) else { continue };
        if let Some(cap) = held.cap {
            one.cap = u64::try_from(cap).ok().filter(|cap| *cap > 0);
        }
        one.paused = held.paused.unwrap_or(one.paused);
    }
}

/// How long the oldest job that waits or is due has done so, in seconds of Redis's clock.
#[must_use]
pub fn oldest_wait(seen: &JobTypeSeen, observation: &Observation) -> Option<u64> {
    let since = [seen.oldest_enqueued_at, seen.oldest_due_at].into_iter().flatten().min()?;
    u64::try_from(observation.redis_time.0.saturating_sub(since.0)).ok().or(Some(0))
}

fn live(pods: &QueuePods) -> impl Iterator<Item = &Arc<PodRecord>> {
    pods.records().filter(|record| record.gone.is_none() && !record.pod.is_over())
}

fn runs(record: &PodRecord) -> bool {
    record.pod.containers.iter().any(|container| container.running().is_some())
}

fn phase(record: &PodRecord) -> PodPhase {
    let pod = &record.pod;
    match (pod.deleting, pod.ready, &*pod.phase) {
        (true, ..) => PodPhase::Terminating,
        (_, true, _) => PodPhase::Ready,
        (_, _, "Running") => PodPhase::NotReady,
        _ => PodPhase::Pending,
    }
}

#[cfg(test)]
mod tests;
