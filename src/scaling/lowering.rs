//! How far a target may be lowered now, so that no job is ended by it, and what must be done before.
//!
//! "`controller.kubernetes.io/pod-deletion-cost` on the busy pods, only when about to scale down, then wait until the
//! pods were seen with it, look again, and only then lower; not while a busy pod is not Ready (it would go first
//! whatever its cost), not during a rollout. `StatefulSet`s: never below the highest busy ordinal. Anything else: not
//! below its pods while one is busy."
//!
//! Which pods are busy changes from look to look where jobs are short. So marks of pods that are not busy any more stay
//! until there is no unmarked idle pod left that could go: otherwise the marks would always be those of the last look.

use std::collections::BTreeMap;

use super::decision::{Facts, Limit, Step, TargetKind};
use super::pods::{self, PodFacts, PodPhase, PodUid};
use super::rules::Rules;

/// What to do about a target that has more than `desired` replicas, and what keeps it from being all.
pub(super) fn lower(facts: &Facts<'_>, rules: &Rules, desired: i32) -> (Step, Option<Limit>) {
    if !facts.pods_known {
        return (Step::Hold, Some(Limit::PodsUnknown));
    }
    if !rules.protect_busy {
        return (Step::Scale(desired), None);
    }
    let floor = floor(facts);
    let to = desired.max(floor);
    if to >= facts.current {
        return (Step::Hold, Some(Limit::BusyPods));
    }
    if facts.kind == TargetKind::Replicas {
        return lower_by_cost(facts, desired, to);
    }
    (Step::Scale(to), (to > desired).then_some(Limit::BusyPods))
}

/// The number of replicas below which a busy pod would go, in a target of this kind.
fn floor(facts: &Facts<'_>) -> i32 {
    let busy = pods::busy(facts.pods);
    match facts.kind {
        TargetKind::Replicas => busy,
        TargetKind::Ordinal { first }
            if busy > 0 && pods::live(facts.pods).any(|pod| pod.ordinal().is_some_and(|ordinal| ordinal < first)) =>
        {
            // It was another one when the target was read last.
            i32::MAX
        }
        TargetKind::Ordinal { first } => {
            let needed = |pod: &PodFacts| match pod.ordinal() {
                Some(ordinal) => ordinal.saturating_sub(first).saturating_add(1),
                None => i32::MAX,
            };
            facts.pods.iter().filter(|pod| pod.is_busy()).map(needed).max().unwrap_or(0).max(busy)
        }
        TargetKind::Other if busy > 0 => i32::MAX,
        TargetKind::Other => 0,
    }
}

/// The pods of the lowest cost go first. `to`: at least as many as are busy.
fn lower_by_cost(facts: &Facts<'_>, desired: i32, to: i32) -> (Step, Option<Limit>) {
    if facts.rolling_out || pods::are_mixed(facts.pods) {
        return (Step::Hold, Some(Limit::Rollout));
    }
    if facts.pods.iter().any(|pod| pod.is_busy() && pod.phase != PodPhase::Ready) {
        return (Step::Hold, Some(Limit::BusyPodNotReady));
    }
    let limit = (to > desired).then_some(Limit::BusyPods);
    if to == 0 {
        return (Step::Scale(0), limit);
    }
    let cost = pods::protecting_cost(facts.pods);
    let is_marked = |pod: &&PodFacts| pod.deletion_cost.is_some_and(|carried| carried >= cost);
    let unmarked = facts.pods.iter().filter(|pod| pod.is_busy() && !is_marked(pod));
    let marks: BTreeMap<PodUid, Option<i32>> = unmarked.map(|pod| (PodUid(pod.uid.clone()), Some(cost))).collect();
    if !marks.is_empty() {
        return (Step::MarkBusy { costs: marks }, limit);
    }
    let staying = pods::count(pods::live(facts.pods).filter(is_marked));
    if staying < facts.current {
        return (Step::Scale(to.max(staying)), limit);
    }
    let left_over = pods::live(facts.pods).filter(|pod| !pod.is_busy() && pod.carries_ours());
    let to_go = usize::try_from(facts.current.saturating_sub(to)).unwrap_or(0);
    (Step::MarkBusy { costs: left_over.take(to_go).map(|pod| (PodUid(pod.uid.clone()), None)).collect() }, limit)
}
