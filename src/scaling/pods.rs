//! What is known of the pods of a target: which run jobs, and which deletion costs they should carry.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The deletion cost of a busy pod. The `ReplicaSet` controller ends pods of a lower cost first.
pub const BUSY_COST: i32 = 1_000_000_000;
/// The same where somebody else gave an idle pod a cost that is no lower.
pub const HIGHEST_COST: i32 = i32::MAX;

/// A pod's uid. Its own type, so that no name is taken for one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodUid(pub Arc<str>);

/// One pod of the target. Pods that are over (phase `Failed` or `Succeeded`) are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFacts {
    /// Its uid.
    pub uid: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Jobs that it runs.
    pub running: u64,
    /// Whether it may run jobs that can't be attributed.
    pub unsure: bool,
    /// How far it is.
    pub phase: PodPhase,
    /// Its annotation `controller.kubernetes.io/pod-deletion-cost`, where that is a number.
    pub deletion_cost: Option<i32>,
    /// Uid of its owner. More than one among live pods of a Deployment means a rollout.
    pub revision: Option<Arc<str>>,
}

/// How far a pod is. Exactly one of these at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodPhase {
    /// Its containers don't run yet.
    Pending,
    /// It runs and is Ready.
    Ready,
    /// It runs and is not Ready.
    NotReady,
    /// Its deletion was asked for.
    Terminating,
}

impl PodFacts {
    /// Whether the target counts it among its replicas.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.phase != PodPhase::Terminating
    }

    /// Whether it runs jobs, or may do so, and is not ending anyway.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.is_live() && (self.running > 0 || self.unsure)
    }

    /// Whether its deletion cost is exactly one of those that we give.
    #[must_use]
    pub fn carries_ours(&self) -> bool {
        self.deletion_cost.is_some_and(is_ours)
    }

    /// The number at the end of its name, as a `StatefulSet` gives it.
    #[must_use]
    pub fn ordinal(&self) -> Option<i32> {
        self.name.rsplit_once('-')?.1.parse().ok()
    }
}

/// Whether this is exactly one of the deletion costs that we give.
#[must_use]
pub fn is_ours(cost: i32) -> bool {
    matches!(cost, BUSY_COST | HIGHEST_COST)
}

/// Pods that the target counts among its replicas.
pub(super) fn live(pods: &[PodFacts]) -> impl Iterator<Item = &PodFacts> {
    pods.iter().filter(|pod| pod.is_live())
}

/// How many pods are busy.
pub(super) fn busy(pods: &[PodFacts]) -> i32 {
    count(pods.iter().filter(|pod| pod.is_busy()))
}

/// Whether every replica that was asked for is there and Ready.
pub(super) fn all_ready(pods: &[PodFacts], replicas: i32) -> bool {
    count(live(pods)) == replicas && live(pods).all(|pod| pod.phase == PodPhase::Ready)
}

/// Whether live pods are of more than one revision.
pub(super) fn are_mixed(pods: &[PodFacts]) -> bool {
    live(pods).filter_map(|pod| pod.revision.as_ref()).collect::<BTreeSet<_>>().len() > 1
}

/// The deletion cost that busy pods need to go last. Costs that we may have given ourselves don't count.
pub(super) fn protecting_cost(pods: &[PodFacts]) -> i32 {
    let by_others = |pod: &&PodFacts| !pod.is_busy() && !pod.carries_ours();
    let highest = live(pods).filter(by_others).filter_map(|pod| pod.deletion_cost).max();
    if highest.is_some_and(|cost| cost >= BUSY_COST) { HIGHEST_COST } else { BUSY_COST }
}

pub(super) fn count<'a>(pods: impl Iterator<Item = &'a PodFacts>) -> i32 {
    i32::try_from(pods.count()).unwrap_or(i32::MAX)
}
