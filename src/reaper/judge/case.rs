//! One pool's case: which containers may be its own, by its binding or else by its host name.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Identity;
use super::crowd::ProcessKey;
use super::hosts::Hosts;
use super::memory::{Memory, Process};
use crate::protocol::{EpochSeconds, PoolId};
use crate::reaper::binding::{Binding, Candidate, Contender};
use crate::reaper::host::HostKey;
use crate::reaper::owner::QueuePods;
use crate::reaper::pods::{Fate, WhyUnknown};
use crate::reaper::verdict::{Facts, Origin, Settings};

/// One pool that beat at least once.
pub(super) struct Case {
    /// Its process.
    pub process: ProcessKey,
    /// The containers that may be its own.
    pub contenders: Vec<Contender>,
    /// Whether a binding names the only contender.
    pub bound: bool,
    /// Whether another queue judges it, by its binding.
    pub foreign: bool,
}

/// Whose a pool is by its binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Ours to judge, by what we know of the candidates.
    Ours,
    /// Another queue judges: its pods are none of ours, and we know nothing of them.
    Foreign,
    /// The queue that made it is there no more, or cannot tell either: the host name decides, as without a binding.
    Moot,
}

impl Standing {
    /// Several queues may work on one Redis namespace from one Kubernetes namespace. A candidate that is no pod of ours
    /// is then either a pod of ours that is gone for good, or one of another queue, which alone knows what its kubelet
    /// says. The one that made the binding had the pod; a host name that moved to another queue since takes the pool
    /// along, since workloads are handed over while they run.
    pub(super) fn of(
        binding: &Binding,
        host: Option<&HostKey>,
        identity: &Identity,
        pods: &QueuePods,
        hosts: &Hosts<'_>,
    ) -> Self {
        if identity.is_foreign(binding) {
            return Self::Foreign;
        }
        if binding.candidates.iter().any(|one| pods.get(&one.pod_uid).is_some()) || binding.candidates.is_empty() {
            return Self::Ours;
        }
        let moved_away = host.is_some_and(|host| hosts.moved_away(host));
        match &binding.made_by {
            Some(queue) if *queue != identity.name => {
                let moved_here = host.is_some_and(|host| hosts.moved_here(host));
                let one_of_several = binding.candidates.len() > 1 && host.is_some_and(|host| hosts.has_pod(host));
                if hosts.is_claimed_by(queue) && !moved_here && !one_of_several { Self::Foreign } else { Self::Moot }
            }
            _ if moved_away => Self::Foreign,
            _ => Self::Ours,
        }
    }
}

/// The candidates of a binding, with what became of them.
pub(super) fn candidates(binding: &Binding, pods: &QueuePods) -> Vec<Contender> {
    let of = |candidate: &Candidate| {
        let record = pods.get(&candidate.pod_uid);
        Contender::of_candidate(candidate, record.map(AsRef::as_ref), Fate::Unknown(WhyUnknown::PodGone))
    };
    binding.candidates.iter().map(of).collect()
}

impl Case {
    /// The case of a pool; `None` where neither it nor a binding ever said when it started.
    pub(super) fn of(
        memory: &Memory,
        binding: Option<&Binding>,
        identity: &Identity,
        pods: &QueuePods,
        hosts: &Hosts<'_>,
    ) -> Option<Self> {
        let beat = memory.beat.clone();
        let host = beat.as_ref().map(|process| process.host.clone()).or_else(|| host_of(binding?));
        let standing = binding.map(|one| Standing::of(one, host.as_ref(), identity, pods, hosts));
        if standing == Some(Standing::Foreign) {
            let started_at = beat.as_ref().map(|process| process.started_at).or(binding?.started_at);
            let process = ProcessKey {
                host: host?,
                pid: beat.map(|process| process.pid).unwrap_or_default(),
                started_at: started_at.unwrap_or(EpochSeconds(0)),
            };
            return Some(Self { process, contenders: Vec::new(), bound: false, foreign: true });
        }
        let binding = binding.filter(|_| standing != Some(Standing::Moot));
        let Process { started_at, host, pid } = beat.or_else(|| process_of(binding?))?;
        let process = ProcessKey { host, pid, started_at };
        let silence = &memory.silence;
        let mut contenders: Vec<Contender> = binding.map(|one| candidates(one, pods)).unwrap_or_default();
        let named_one = contenders.len() == 1;
        contenders.retain(|one| {
            let holds = one.end_seen().is_none() || one.proven(started_at) || !named_one;
            holds && !one.excluded(started_at) && !one.refuted(silence)
        });
        let bound = named_one && contenders.len() == 1;
        if !bound {
            // A list may lack the right one, if it was made while that one was not reported yet.
            let by_host = hosts.contenders(&process.host, started_at, silence);
            let unlisted = |one: &Contender| !contenders.iter().any(|listed| listed.place == one.place);
            let more: Vec<Contender> = by_host.into_iter().filter(unlisted).collect();
            contenders.extend(more);
        }
        Some(Self { process, contenders, bound, foreign: false })
    }

    /// What the verdict needs to know.
    pub(super) fn facts<'a>(
        &'a self,
        memory: &'a Memory,
        hosts: &Hosts<'_>,
        pods_known: bool,
        superseded_by: Option<&'a PoolId>,
    ) -> Facts<'a> {
        let host = &self.process.host;
        let started_at = self.process.started_at;
        let origin = if self.foreign { Origin::Foreign } else { hosts.origin(host) };
        Facts {
            started_at,
            host,
            silence: &memory.silence,
            present: memory.present,
            listed: memory.listed,
            contenders: &self.contenders,
            bound: self.bound,
            shared: !self.bound && hosts.hosted(host).has_others(&self.contenders, started_at),
            origin,
            superseded_by,
            pods_known,
            reaped_beats_again: memory.reaped_beats_again(),
        }
    }
}

/// The host name of a pool whose heartbeat is deleted, as far as its binding tells.
fn host_of(binding: &Binding) -> Option<HostKey> {
    binding.candidates.first().map(|candidate| HostKey::of(&candidate.pod))
}

/// The process of a pool whose heartbeat is deleted, as far as its binding tells.
fn process_of(binding: &Binding) -> Option<Process> {
    let [candidate] = &binding.candidates[..] else { return None };
    Some(Process { started_at: binding.started_at?, host: HostKey::of(&candidate.pod), pid: "".into() })
}

/// The beating pools that a binding ties to one running container, by that container.
pub(super) struct Tenants<'a>(HashMap<&'a Arc<str>, Vec<Tenant<'a>>>);

struct Tenant<'a> {
    pool: &'a PoolId,
    process: &'a ProcessKey,
}

/// Finds who beats in which container.
pub(super) fn tenants<'a>(
    cases: &'a BTreeMap<PoolId, Case>,
    memories: &'a BTreeMap<PoolId, Box<Memory>>,
    settings: &Settings,
) -> Tenants<'a> {
    let mut tenants: HashMap<&Arc<str>, Vec<Tenant<'_>>> = HashMap::new();
    for (pool, case) in cases {
        let ([bound], true, Some(memory)) = (&case.contenders[..], case.bound, memories.get(pool)) else { continue };
        let beats = memory.silence.ever_moved() && memory.silence.silent_for() < settings.heartbeat_timeout;
        if bound.runs() && beats {
            let tenant = Tenant { pool, process: &case.process };
            tenants.entry(&bound.place.container_id).or_default().push(tenant);
        }
    }
    Tenants(tenants)
}

impl<'a> Tenants<'a> {
    /// "A newer beating pool with another `pid` in the same container makes an older silent one subject to silence (a
    /// supervisor restarted it)."
    pub(super) fn superseding(&self, pool: &PoolId, case: &Case) -> Option<&'a PoolId> {
        let [one] = &case.contenders[..] else { return None };
        let others = self.0.get(&one.place.container_id)?;
        let newer = others.iter().find(|other| {
            other.pool != pool
                && other.process.pid != case.process.pid
                && other.process.started_at > case.process.started_at
        });
        newer.map(|other| other.pool)
    }
}
