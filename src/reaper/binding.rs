//! Which container runs a pool.
//!
//! Carries out "What ties a pool to a container is a binding, made when the pool's heartbeat was seen to move, or the
//! pool to appear, while exactly one worker container with its host name was reported running, and that one started no
//! later than the pool; where several could be the pool's, all are kept as candidates": [`bind`]; and "on a tie or
//! later the binding is wrong": [`Contender::excluded`] and [`Contender::proven`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::protocol::EpochSeconds;
use crate::reaper::pods::{ContainerRun, Fate, PodRecord, STARTED_LATE};
use crate::reaper::silence::Silence;

/// A container that runs, or may run, a pool.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// Cluster of the pod.
    pub cluster: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Uid of the pod.
    pub pod_uid: String,
    /// Name of the container in the pod.
    pub container: String,
    /// Id of the container as its kubelet reports it, such as `containerd://…`.
    pub container_id: String,
}

/// What ties a pool to the container that runs it. Kept in Redis, so that a restarted operator still has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    /// One candidate: the pool is bound. Several: one of them runs it, unknown which.
    pub candidates: Box<[Candidate]>,
    /// Name of the `JobQueue` that made it, in the cluster and namespace of the candidates: that one judges the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<String>,
    /// `started_at` of the pool, for the case that its heartbeat is deleted before we see its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<EpochSeconds>,
}

/// Where a container is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Namespace of the pod.
    pub namespace: Arc<str>,
    /// Name of the pod.
    pub pod: Arc<str>,
    /// Uid of the pod.
    pub pod_uid: Arc<str>,
    /// Name of the container.
    pub container: Arc<str>,
    /// Id of the container.
    pub container_id: Arc<str>,
}

/// A container that may be a pool's, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contender {
    /// Where it is.
    pub place: Place,
    /// The first second of its node's clock at which a process of it can have started.
    pub earliest_start: Option<EpochSeconds>,
    /// What became of it.
    pub fate: Fate,
}

impl Contender {
    /// One container of a pod that we saw.
    #[must_use]
    pub fn of_run(record: &PodRecord, run: &ContainerRun) -> Self {
        let pod = &record.pod;
        let place = Place {
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            pod_uid: pod.uid.clone(),
            container: run.container.clone(),
            container_id: run.id.clone(),
        };
        Self { place, earliest_start: run.earliest_start, fate: record.fate(&run.container, &run.id) }
    }

    /// A candidate of a binding: `record` is its pod, where we know it; `otherwise` its fate where we don't.
    #[must_use]
    pub fn of_candidate(candidate: &Candidate, record: Option<&PodRecord>, otherwise: Fate) -> Self {
        if let Some(record) = record
            && let Some(run) = record.runs.iter().find(|run| *run.id == *candidate.container_id)
        {
            return Self::of_run(record, run);
        }
        let fate = record.map_or(otherwise, |record| record.fate(&candidate.container, &candidate.container_id));
        let place = Place {
            namespace: candidate.namespace.as_str().into(),
            pod: candidate.pod.as_str().into(),
            pod_uid: candidate.pod_uid.as_str().into(),
            container: candidate.container.as_str().into(),
            container_id: candidate.container_id.as_str().into(),
        };
        Self { place, earliest_start: None, fate }
    }

    /// As a binding keeps it.
    #[must_use]
    pub fn candidate(&self, cluster: &str) -> Candidate {
        Candidate {
            cluster: cluster.to_string(),
            namespace: self.place.namespace.to_string(),
            pod: self.place.pod.to_string(),
            pod_uid: self.place.pod_uid.to_string(),
            container: self.place.container.to_string(),
            container_id: self.place.container_id.to_string(),
        }
    }

    /// Whether it runs, as far as its kubelet says.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.fate == Fate::Running
    }

    /// When we saw that it had ended, if it is known to have.
    #[must_use]
    pub fn end_seen(&self) -> Option<std::time::Instant> {
        match &self.fate {
            Fate::Ended { seen, .. } | Fate::Replaced { seen, .. } | Fate::PodEnded { seen, .. } => Some(*seen),
            Fate::Running | Fate::Unknown(_) => None,
        }
    }

    /// Whether it can't be the container of a pool that started at `started_at`: it started later, or ended earlier.
    /// If it were the pool's, all these times would be of one node's clock.
    #[must_use]
    pub fn excluded(&self, started_at: EpochSeconds) -> bool {
        if self.earliest_start.is_some_and(|start| start > started_at) {
            return true;
        }
        let latest_end = match &self.fate {
            Fate::Ended { end, .. } => end.finished_at,
            Fate::Replaced { before, .. } => *before,
            Fate::Running | Fate::PodEnded { .. } | Fate::Unknown(_) => None,
        };
        latest_end.is_some_and(|end| started_at > end)
    }

    /// Whether its end proves the death of a pool bound to it, which started at `started_at`: certainly so only when
    /// the pool started before it ended. On a tie or later, the pool was bound while the kubelet's report lagged. Where
    /// only the successor's `startedAt` tells of the end, that one may have started a little before it.
    #[must_use]
    pub fn proven(&self, started_at: EpochSeconds) -> bool {
        match &self.fate {
            Fate::Ended { end, .. } => end.finished_at.is_some_and(|end| started_at < end),
            Fate::Replaced { before, .. } => before.is_some_and(|next| started_at.0 < next.0 - STARTED_LATE),
            Fate::PodEnded { .. } => true,
            Fate::Running | Fate::Unknown(_) => false,
        }
    }

    /// Whether the pool beat after this container had been seen to have ended, and so ran elsewhere.
    #[must_use]
    pub fn refuted(&self, silence: &Silence) -> bool {
        self.end_seen().is_some_and(|seen| silence.beat_after(seen))
    }
}

/// Who has a pool's host name just now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosted {
    /// Worker containers of the queue that are reported running.
    pub running: Vec<Contender>,
    /// Worker containers of the queue of which nobody can tell whether they run.
    pub lost: Vec<Contender>,
    /// Worker containers of the queue's pods that are not reported to run, but may have started since: uid of the pod and
    /// name of the container.
    pub may_start: Vec<(Arc<str>, Arc<str>)>,
    /// Whether another queue, here or in another cluster, claims the host name too.
    pub claimed_elsewhere: bool,
}

impl Hosted {
    /// The only worker container that can have this host name, if there is but one.
    #[must_use]
    pub fn sole(&self) -> Option<&Contender> {
        match &self.running[..] {
            [one] if self.lost.is_empty() && self.may_start.is_empty() && !self.claimed_elsewhere => Some(one),
            _ => None,
        }
    }

    /// Those with an id.
    fn known(&self) -> impl Iterator<Item = &Contender> {
        self.running.iter().chain(&self.lost)
    }

    /// Whether some process that is none of the contenders may be that of a pool which started at `started_at`.
    #[must_use]
    pub fn has_others(&self, contenders: &[Contender], started_at: EpochSeconds) -> bool {
        let among = |uid: &Arc<str>, container: &Arc<str>| {
            contenders.iter().any(|one| one.place.pod_uid == *uid && one.place.container == *container)
        };
        self.claimed_elsewhere
            || self.may_start.iter().any(|(uid, container)| !among(uid, container))
            || self.known().any(|one| !one.excluded(started_at) && !among(&one.place.pod_uid, &one.place.container))
    }
}

/// The containers that a pool is to be bound to from now on; `None` leaves what is.
///
/// Called when the pool's heartbeat moved, or it appeared. `existing` are the candidates of its binding.
///
/// A binding to one container stays for as long as that may be the pool's. Several candidates become one when all
/// others are ruled out, and that one alone has the host name. None is made while a container may have started that is
/// not reported yet: it might be the one.
#[must_use]
pub fn bind(
    existing: &[Contender],
    started_at: EpochSeconds,
    silence: &Silence,
    hosted: &Hosted,
) -> Option<Vec<Contender>> {
    let possible = |one: &Contender| !one.excluded(started_at) && !one.refuted(silence);
    let left: Vec<&Contender> = existing.iter().filter(|one| possible(one)).collect();
    let sole = hosted.sole().filter(|sole| possible(sole));
    if !left.is_empty() {
        let narrowed = sole.filter(|sole| existing.len() > 1 && left.len() == 1 && left[0].place == sole.place);
        return narrowed.map(|sole| vec![sole.clone()]);
    }
    if let Some(sole) = sole {
        return Some(vec![sole.clone()]);
    }
    let known: Vec<Contender> = hosted.known().cloned().collect();
    if known.len() < 2 || !hosted.may_start.is_empty() {
        return None;
    }
    let left: Vec<Contender> = known.iter().filter(|one| possible(one)).cloned().collect();
    let kept = if left.len() < 2 { known } else { left };
    Some(kept).filter(|kept| !same_places(kept, existing))
}

fn same_places(left: &[Contender], right: &[Contender]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left.place == right.place)
}

#[cfg(test)]
mod tests;
