//! Judges all pools of one queue, look after look: what the pure rules of [`super::verdict`] need is put together here,
//! and nothing is changed anywhere.
//!
//! A *look* is one successful read of Redis. Between looks, [`Judge::react`] judges the last one anew when pods
//! changed, so that a certain proof needs no further read.

mod case;
mod crowd;
mod hosts;
mod judgement;
mod memory;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use judgement::Judgement;

use crate::protocol::{Claim, Observation, PoolId};
use crate::reaper::binding::{Binding, Candidate, Contender, bind};
use crate::reaper::owner::QueuePods;
use crate::reaper::pods::{Fate, RunState};
use crate::reaper::verdict::{Decider, Proof, Settings, UnknownFacts, Verdict, decide, decide_unknown};
use case::{Case, Standing, candidates, tenants};
use crowd::{Claimant, Deaths, Fell, hold_many_at_once, limit_to_ended};
use hosts::Hosts;
use memory::{MadeBinding, Memory};

/// Time between looks while a fate is open, or a worker container is starting.
const OPEN_LOOK: Duration = Duration::from_secs(1);
/// Time between looks while all is well: less than the gap over which silence is counted, so that a worker that falls
/// silent is known to have done so from its last beat on.
const CALM_LOOK: Duration = Duration::from_secs(2);
/// Time between looks while there are no pools.
const EMPTY_LOOK: Duration = Duration::from_secs(5);
/// A worker container without a pool counts as starting for so long.
const STARTS_WITHIN: Duration = Duration::from_secs(15);

/// Which queue a judge judges for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Name of the cluster that we run in.
    pub cluster: String,
    /// Kubernetes namespace of the `JobQueue`.
    pub namespace: String,
    /// Name of the `JobQueue`.
    pub name: String,
}

impl Identity {
    /// Whether a claim is this queue's own.
    #[must_use]
    pub fn made(&self, claim: &Claim) -> bool {
        claim.cluster == self.cluster && claim.namespace == self.namespace && claim.name == self.name
    }

    /// Whether a binding names containers of other clusters or namespaces only.
    #[must_use]
    pub fn is_foreign(&self, binding: &Binding) -> bool {
        !binding.candidates.is_empty() && !binding.candidates.iter().any(|one| self.is_near(one))
    }

    /// Whether a binding names containers of this cluster and namespace only.
    #[must_use]
    pub fn owns_all(&self, binding: &Binding) -> bool {
        binding.candidates.iter().all(|one| self.is_near(one))
    }

    fn is_near(&self, candidate: &Candidate) -> bool {
        candidate.cluster == self.cluster && candidate.namespace == self.namespace
    }
}

/// The judge of one queue.
#[derive(Debug)]
pub struct Judge {
    identity: Identity,
    settings: Settings,
    memories: BTreeMap<PoolId, Box<Memory>>,
    /// Processes that were found dead, for as long as their pods are remembered.
    deaths: Deaths,
    last: Option<(Instant, Arc<Observation>)>,
}

impl Judge {
    /// A judge that has seen nothing yet.
    #[must_use]
    pub fn new(identity: Identity, settings: Settings) -> Self {
        Self { identity, settings, memories: BTreeMap::new(), deaths: Deaths::new(), last: None }
    }

    /// Judges by these times from now on.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Takes in one successful read, begun at `now`, and judges.
    pub fn look(&mut self, now: Instant, observation: Arc<Observation>, pods: &QueuePods) -> Judgement {
        let last_look = self.last.as_ref().map(|(at, _)| *at);
        self.remember(now, &observation, last_look);
        let hosts = Hosts::new(pods, &observation, &self.identity);
        self.make_bindings(&observation, pods, &hosts);
        self.forget_deaths(pods);
        let judgement = self.evaluate(now, &observation, pods, &hosts);
        self.last = Some((now, observation));
        judgement
    }

    /// Judges the last look anew, with the pods as they are now; `None` before the first look. No silence is counted
    /// beyond that look.
    pub fn react(&mut self, now: Instant, pods: &QueuePods) -> Option<Judgement> {
        let (_, observation) = self.last.clone()?;
        let hosts = Hosts::new(pods, &observation, &self.identity);
        Some(self.evaluate(now, &observation, pods, &hosts))
    }

    fn remember(&mut self, now: Instant, observation: &Observation, last_look: Option<Instant>) {
        let connection = observation.connection;
        let mut old = std::mem::take(&mut self.memories);
        for (pool, seen) in &observation.pools {
            let mut memory = Memory::after(old.remove(pool), seen, now, connection, last_look);
            memory.settle_binding(observation.bindings.get(pool));
            memory.reaped_seen = observation.reaped.contains_key(pool).then(|| memory.reaped_seen.unwrap_or(now));
            self.memories.insert(pool.clone(), memory);
        }
    }

    fn make_bindings(&mut self, observation: &Observation, pods: &QueuePods, hosts: &Hosts<'_>) {
        for (pool, memory) in &mut self.memories {
            let Some(process) = memory.beat.clone().filter(|_| memory.shows_life()) else { continue };
            let kept = observation.bindings.get(pool);
            let binding = memory.binding(kept);
            let standing = binding.map(|one| Standing::of(one, Some(&process.host), &self.identity, pods, hosts));
            let binding = match standing {
                Some(Standing::Foreign) => continue,
                Some(Standing::Moot) => None,
                Some(Standing::Ours) | None => binding,
            };
            let existing: Vec<Contender> = binding.map(|one| candidates(one, pods)).unwrap_or_default();
            let made = bind(&existing, process.started_at, &memory.silence, &hosts.hosted(&process.host));
            if let Some(contenders) = made {
                let binding = Binding {
                    candidates: contenders.iter().map(|one| one.candidate(&self.identity.cluster)).collect(),
                    made_by: Some(self.identity.name.clone()),
                    started_at: Some(process.started_at),
                };
                memory.made = Some(Box::new(MadeBinding { binding, replaces: kept.cloned() }));
            }
        }
    }

    fn forget_deaths(&mut self, pods: &QueuePods) {
        if !self.deaths.is_empty() {
            let runs = pods.records().flat_map(|record| &record.runs);
            let known: BTreeSet<&Arc<str>> = runs.map(|run| &run.id).collect();
            self.deaths.retain(|_, candidates| candidates.iter().any(|id| known.contains(id)));
        }
    }

    fn evaluate(&mut self, now: Instant, observation: &Observation, pods: &QueuePods, hosts: &Hosts<'_>) -> Judgement {
        let cases = self.cases(observation, pods, hosts);
        let tenants = tenants(&cases, &self.memories, &self.settings);
        let newest_start = hosts.newest_start();
        let jobs = jobs_by_pool(observation);
        let mut verdicts = BTreeMap::new();
        for (pool, memory) in &self.memories {
            let verdict = if let Some(case) = cases.get(pool) {
                let facts = case.facts(memory, hosts, pods.synced(), tenants.superseding(pool, case));
                decide(&facts, &self.settings)
            } else {
                let facts = UnknownFacts {
                    known_for: memory.silence.known_for(),
                    pod_started_since: newest_start.is_some_and(|start| start >= memory.silence.first_read()),
                    reaped: memory.reaped_seen.is_some(),
                    in_progress: jobs.get(pool).copied().unwrap_or(0),
                    listed: memory.listed,
                };
                decide_unknown(&facts, &self.settings)
            };
            verdicts.insert(pool.clone(), verdict);
        }
        let fell = self.fell(&verdicts);
        let held = hold_many_at_once(&mut verdicts, &fell, self.settings.heartbeat_timeout);
        self.limit(&mut verdicts, &cases, pods);
        let mut judgement = Judgement::of(verdicts, held);
        judgement.attribute(&cases);
        judgement.shared_hosts = hosts.shared().collect();
        self.report_bindings(&mut judgement, observation);
        self.report_resurrected(&mut judgement);
        judgement.next_look = next_look(now, &judgement, &cases, pods);
        judgement
    }

    fn cases(&self, observation: &Observation, pods: &QueuePods, hosts: &Hosts<'_>) -> BTreeMap<PoolId, Case> {
        let mut cases = BTreeMap::new();
        for (pool, memory) in &self.memories {
            let binding = memory.binding(observation.bindings.get(pool));
            if let Some(case) = Case::of(memory, binding, &self.identity, pods, hosts) {
                cases.insert(pool.clone(), case);
            }
        }
        cases
    }

    /// The silences of all pools that beat at least once and whose end is not certain.
    fn fell(&self, verdicts: &BTreeMap<PoolId, Verdict>) -> Vec<Fell> {
        let beating = self.memories.iter().filter(|(_, memory)| memory.present);
        let open = beating.filter(
            |(pool, _)| !matches!(verdicts.get(*pool), Some(Verdict::Dead(proof)) if proof.silence().is_none()),
        );
        open.map(|(_, memory)| Fell { since: memory.silence.since(), silent_for: memory.silence.silent_for() })
            .collect()
    }

    /// Takes back what is more than the ended containers of a shared host name allow. A pool that can only be in a
    /// container that does not run any more comes before one that may be in a running one.
    fn limit(&mut self, verdicts: &mut BTreeMap<PoolId, Verdict>, cases: &BTreeMap<PoolId, Case>, pods: &QueuePods) {
        let (mut claimants, mut sure) = (Vec::new(), Vec::new());
        for (pool, verdict) in &*verdicts {
            let (Some(case), Some(memory)) = (cases.get(pool), self.memories.get(pool)) else { continue };
            let claimant = || Claimant {
                pool: pool.clone(),
                process: case.process.clone(),
                since: memory.silence.since(),
                candidates: case.contenders.iter().map(|one| one.place.container_id.clone()).collect(),
                may_run: case.contenders.iter().any(Contender::runs),
                dead: matches!(verdict, Verdict::Dead(_)),
            };
            match verdict {
                Verdict::Dead(Proof::SharedHostSilent { .. }) => claimants.push(claimant()),
                _ if !case.contenders.is_empty() && !case.contenders.iter().any(Contender::runs) => {
                    sure.push(claimant());
                }
                _ => {}
            }
        }
        let over = if claimants.is_empty() { BTreeSet::new() } else { containers_over(pods) };
        limit_to_ended(verdicts, &over, sure, claimants, &mut self.deaths);
    }

    fn report_bindings(&self, judgement: &mut Judgement, observation: &Observation) {
        for (pool, memory) in &self.memories {
            if let Some(made) = &memory.made {
                judgement.new_bindings.insert(pool.clone(), made.binding.clone());
            }
        }
        let stale = observation
            .bindings
            .iter()
            .filter(|(pool, binding)| !observation.pools.contains_key(*pool) && self.identity.owns_all(binding));
        judgement.stale_bindings = stale.map(|(pool, _)| pool.clone()).collect();
    }

    /// "If it beats again an Event says that a living worker was taken for dead": said once.
    fn report_resurrected(&mut self, judgement: &mut Judgement) {
        for (pool, memory) in &mut self.memories {
            if memory.reaped_beats_again() == Some(true) && !memory.said_to_beat_again {
                memory.said_to_beat_again = true;
                judgement.resurrected.insert(pool.clone());
            }
        }
    }
}

/// Jobs that each pool holds.
fn jobs_by_pool(observation: &Observation) -> BTreeMap<PoolId, u64> {
    let mut jobs: BTreeMap<PoolId, u64> = BTreeMap::new();
    for (pool, count) in observation.job_types.values().flat_map(|seen| &seen.in_progress) {
        let sum = jobs.entry(pool.clone()).or_default();
        *sum = sum.saturating_add(*count);
    }
    jobs
}

/// Ids of the containers that are not reported running.
fn containers_over(pods: &QueuePods) -> BTreeSet<Arc<str>> {
    let runs = pods.records().flat_map(|record| record.runs.iter().map(move |run| (record, run)));
    let over = runs.filter(|(record, run)| record.fate(&run.container, &run.id) != Fate::Running);
    over.map(|(_, run)| run.id.clone()).collect()
}

/// When to read again.
fn next_look(now: Instant, judgement: &Judgement, cases: &BTreeMap<PoolId, Case>, pods: &QueuePods) -> Duration {
    let open = judgement.undecided.values().any(Decider::wants_reads);
    if open || starting(now, cases, pods) {
        OPEN_LOOK
    } else if cases.is_empty() {
        EMPTY_LOOK
    } else {
        CALM_LOOK
    }
}

/// Whether a worker container started just now and no pool is bound to it yet.
fn starting(now: Instant, cases: &BTreeMap<PoolId, Case>, pods: &QueuePods) -> bool {
    let bound: BTreeSet<&Arc<str>> = cases
        .values()
        .filter(|case| case.bound)
        .flat_map(|case| &case.contenders)
        .map(|one| &one.place.container_id)
        .collect();
    let live = pods.records().filter(|record| record.gone.is_none());
    live.flat_map(|record| &record.runs).any(|run| {
        run.state == RunState::Running
            && pods.is_worker(&run.container)
            && now.saturating_duration_since(run.first_seen) < STARTS_WITHIN
            && !bound.contains(&run.id)
    })
}

#[cfg(test)]
mod tests;
