//! Who has which host name: the queue's pods, and the claims of other queues.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use crate::protocol::{Claim, EpochSeconds, Observation};
use crate::reaper::binding::{Contender, Hosted, Place};
use crate::reaper::host::HostKey;
use crate::reaper::owner::QueuePods;
use crate::reaper::pods::{Fate, PodRecord};
use crate::reaper::silence::Silence;
use crate::reaper::verdict::Origin;

use super::Identity;

/// How long a host name in a claim counts, in seconds.
const A_DAY: i64 = 86_400;
/// Seconds after which a pod that another queue was the last to have is no longer ours too: claims are renewed with each
/// pass, so that two queues that both have one name it within this time.
const HANDED_OVER: i64 = 60;

/// All host names of one look.
pub(super) struct Hosts<'a> {
    pods: &'a QueuePods,
    by_host: HashMap<&'a HostKey, Vec<&'a PodRecord>>,
    ours: HashMap<HostKey, EpochSeconds>,
    others: HashMap<HostKey, EpochSeconds>,
    /// Those of `others` that other queues of our cluster and namespace claim.
    next_door: HashMap<HostKey, EpochSeconds>,
    /// The other queues of our cluster and namespace whose claims were written within a day.
    neighbours: HashSet<String>,
}

impl<'a> Hosts<'a> {
    pub(super) fn new(pods: &'a QueuePods, observation: &Observation, identity: &Identity) -> Self {
        let mut by_host: HashMap<&HostKey, Vec<&PodRecord>> = HashMap::new();
        for record in pods.records() {
            for host in &record.pod.hosts {
                by_host.entry(host).or_default().push(record);
            }
        }
        let mut hosts = Self {
            pods,
            by_host,
            ours: HashMap::new(),
            others: HashMap::new(),
            next_door: HashMap::new(),
            neighbours: HashSet::new(),
        };
        for claim in &observation.claims {
            hosts.take_claim(claim, observation.redis_time, identity);
        }
        hosts
    }

    fn take_claim(&mut self, claim: &Claim, redis_time: EpochSeconds, identity: &Identity) {
        let ours = identity.made(claim);
        let neighbour = claim.cluster == identity.cluster && claim.namespace == identity.namespace;
        if !ours && neighbour && redis_time.0.saturating_sub(claim.written_at.0) <= A_DAY {
            self.neighbours.insert(claim.name.clone());
        }
        for (host, there) in &claim.hosts {
            let key = HostKey::of(host);
            if redis_time.0.saturating_sub(there.0) > A_DAY {
                continue;
            }
            // Two queues of one namespace may have the same pods; a pod's name is unique there.
            if !ours && neighbour && self.is_name_of_a_pod(&key) {
                continue;
            }
            if !ours && neighbour {
                keep_latest(&mut self.next_door, key.clone(), *there);
            }
            keep_latest(if ours { &mut self.ours } else { &mut self.others }, key, *there);
        }
    }

    fn is_name_of_a_pod(&self, key: &HostKey) -> bool {
        self.by_host.get(key).is_some_and(|records| records.iter().any(|record| *record.pod.name == *key.as_str()))
    }

    /// The containers that had this host name and may be that of a pool which started at `started_at`.
    pub(super) fn contenders(&self, host: &HostKey, started_at: EpochSeconds, silence: &Silence) -> Vec<Contender> {
        let mut found = Vec::new();
        for record in self.by_host.get(host).into_iter().flatten() {
            for run in record.runs.iter().filter(|run| self.pods.is_worker(&run.container)) {
                let contender = Contender::of_run(record, run);
                if !contender.excluded(started_at) && !contender.refuted(silence) {
                    found.push(contender);
                }
            }
        }
        if found.is_empty() {
            let unseen = self.by_host.get(host).into_iter().flatten().filter_map(|record| self.unseen_run(record));
            found.extend(unseen.filter(|one| !one.excluded(started_at) && !one.refuted(silence)));
        }
        found
    }

    /// The container that a pod must have had before all that we saw of it, if it was restarted before we saw it.
    fn unseen_run(&self, record: &PodRecord) -> Option<Contender> {
        let restarted = record
            .pod
            .containers
            .iter()
            .find(|status| status.restart_count > 0 && self.pods.is_worker(&status.name))?;
        let runs = || record.runs.iter().filter(|run| run.container == restarted.name);
        let before = runs().filter_map(|run| run.started_at).min();
        let seen: Instant = runs().map(|run| run.first_seen).min()?;
        let pod = &record.pod;
        let place = Place {
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            pod_uid: pod.uid.clone(),
            container: restarted.name.clone(),
            container_id: format!("before:{}/{}", pod.uid, restarted.name).into(),
        };
        Some(Contender { place, earliest_start: None, fate: Fate::Replaced { before, seen } })
    }

    /// Who has this host name now.
    pub(super) fn hosted(&self, host: &HostKey) -> Hosted {
        let mut hosted = Hosted { claimed_elsewhere: self.others.contains_key(host), ..Hosted::default() };
        for record in self.by_host.get(host).into_iter().flatten() {
            for status in record.pod.containers.iter().filter(|status| self.pods.is_worker(&status.name)) {
                let mut runs = record.runs.iter().filter(|run| run.container == status.name);
                let open = runs.find(|run| !run.state.is_over()).map(|run| Contender::of_run(record, run));
                let past = record.gone.is_some() || record.pod.is_over();
                match open {
                    Some(one) if one.runs() => hosted.running.push(one),
                    Some(one) if one.end_seen().is_some() => {}
                    Some(one) => hosted.lost.push(one),
                    None if past => {}
                    None => hosted.may_start.push((record.pod.uid.clone(), status.name.clone())),
                }
            }
        }
        hosted
    }

    /// Whose a host name is that no container of ours can have. Where two claim it, the one whose pod was there last
    /// (by Redis's clock) judges.
    pub(super) fn origin(&self, host: &HostKey) -> Origin {
        let has_pod = self.by_host.contains_key(host);
        match (self.ours.get(host), self.others.get(host)) {
            (ours, Some(other)) if !has_pod && ours.is_none_or(|ours| other > ours) => Origin::Foreign,
            (None, None) if !has_pod => Origin::Outsider,
            _ => Origin::OfQueue,
        }
    }

    /// Whether another queue of our cluster and namespace is there: it wrote its claim within a day.
    pub(super) fn is_claimed_by(&self, queue: &str) -> bool {
        self.neighbours.contains(queue)
    }

    /// Whether a pod of ours has this host name, or had it within the last hour.
    pub(super) fn has_pod(&self, host: &HostKey) -> bool {
        self.by_host.contains_key(host)
    }

    /// Whether another queue of our cluster and namespace has this host name, and we no more.
    pub(super) fn moved_away(&self, host: &HostKey) -> bool {
        !self.has_pod(host) && is_later(self.next_door.get(host), self.ours.get(host))
    }

    /// Whether we have this host name, and no other queue of our cluster and namespace any more.
    pub(super) fn moved_here(&self, host: &HostKey) -> bool {
        is_later(self.ours.get(host), self.next_door.get(host))
    }

    /// The host names that several processes have, with a pod of ours among them.
    pub(super) fn shared(&self) -> impl Iterator<Item = HostKey> {
        self.by_host.keys().filter_map(|host| {
            let hosted = self.hosted(host);
            let shared = !hosted.running.is_empty() && (hosted.running.len() > 1 || hosted.claimed_elsewhere);
            shared.then(|| (*host).clone())
        })
    }

    /// When a worker container of the queue was last first seen.
    pub(super) fn newest_start(&self) -> Option<Instant> {
        let runs = self.pods.records().flat_map(|record| &record.runs);
        runs.filter(|run| self.pods.is_worker(&run.container)).map(|run| run.first_seen).max()
    }
}

fn keep_latest(side: &mut HashMap<HostKey, EpochSeconds>, host: HostKey, there: EpochSeconds) {
    let latest = side.entry(host).or_insert(there);
    *latest = (*latest).max(there);
}

/// Whether one was last there clearly later than the other, by Redis's clock.
fn is_later(one: Option<&EpochSeconds>, other: Option<&EpochSeconds>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.0.saturating_sub(other.0) > HANDED_OVER,
        (one, _) => one.is_some(),
    }
}
