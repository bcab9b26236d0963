//! What to do about a target now: how many replicas it should have, and the next step towards them.
//!
//! Up at once, within `maxScaleUpPerMinute`; down not below what was recommended within the stabilization window, and
//! as far as `lowering.rs` allows. The bounds come last: they count at once, whatever was recommended,
//! and whoever's hand left the target outside of them.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::demand::{JobTypeFacts, demand};
use super::growth::recommend;
use super::history::History;
use super::lowering::lower;
use super::pods::{PodFacts, PodUid};
use super::reason::Account;
use super::rules::Rules;

/// A decision is to be made again after this time at the latest while anything is held back: time that nobody watches
/// does not count.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Which pods a target gives up when it is lowered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetKind {
    /// Those of the lowest deletion cost: a Deployment, a `ReplicaSet`.
    Replicas,
    /// Those of the highest number: a `StatefulSet`.
    Ordinal {
        /// The number of its first pod (`spec.ordinals.start`), else 0. Too small a number lowers too little; a pod below it shows that it
        /// is not up to date.
        first: i32,
    },
    /// Any.
    Other,
}

/// What one look showed of a queue and its target.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// The queue's own job types.
    pub job_types: &'a [JobTypeFacts],
    /// The target's pods, terminating ones included.
    pub pods: &'a [PodFacts],
    /// Whether `pods` are all that there are, and what they run is known as far as [`PodFacts::unsure`] says.
    pub pods_known: bool,
    /// Jobs that one pod runs at once.
    pub concurrency: u32,
    /// The target's `spec.replicas`: pods that were asked for and are not there yet are among them.
    pub current: i32,
    /// Which pods go first.
    pub kind: TargetKind,
    /// Whether the target's pods are being replaced.
    pub rolling_out: bool,
}

/// What is to be done, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// How many replicas there should be, within the bounds. The steps towards them may take a while.
    pub desired: i32,
    /// What to do now.
    pub step: Step,
    /// One sentence for status and Event, without a capital at its beginning and without a full stop. While nothing is
    /// done its numbers are replicas only, so that it does not change with every job.
    pub reason: String,
    /// What keeps the target from having what the jobs ask for.
    pub limited_by: Option<Limit>,
    /// How long until the decision may be another one though no fact changes but the time: decide again then.
    pub next_change: Option<Duration>,
}

/// The next step towards the desired replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Leave all as it is.
    Hold,
    /// Write that many replicas, on the version of the target that the facts are from.
    Scale(i32),
    /// Set these deletion costs or take them away (`None`), and decide again when the pods were seen with them.
    MarkBusy {
        /// By pod; never empty.
        costs: BTreeMap<PodUid, Option<i32>>,
    },
}

/// What keeps a target from having the replicas that its jobs ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// `minReplicas`.
    Min,
    /// `maxReplicas`.
    Max,
    /// `maxScaleUpPerMinute`.
    UpRate,
    /// `scaleDownStabilizationSeconds`.
    Stabilization,
    /// A job type that can't be read: it may have jobs.
    UnreadJobType,
    /// Pods are not known, so that nothing can be lowered.
    PodsUnknown,
    /// Busy pods, which are waited for.
    BusyPods,
    /// A busy pod that is not Ready: it would go first.
    BusyPodNotReady,
    /// A rollout: pods of the old kind go by their own rules.
    Rollout,
}

impl Limit {
    /// Its name, for a condition or a label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Min => "MinReplicas",
            Self::Max => "MaxReplicas",
            Self::UpRate => "MaxScaleUpPerMinute",
            Self::Stabilization => "ScaleDownStabilization",
            Self::UnreadJobType => "UnreadJobType",
            Self::PodsUnknown => "PodsUnknown",
            Self::BusyPods => "BusyPods",
            Self::BusyPodNotReady => "BusyPodNotReady",
            Self::Rollout => "Rollout",
        }
    }
}

/// Decides what to do at `now`. The same facts, rules, history and time give the same answer. To be called at every
/// look that showed all of `facts`, and at none that failed; when a write has raised the replicas, the history is to be
/// told by [`History::scaled_up`].
pub fn decide(facts: &Facts<'_>, rules: &Rules, history: &mut History, now: Instant) -> Decision {
    history.look(now, facts.current);
    let demand = demand(facts.job_types, rules, facts.concurrency);
    let recommended = recommend(facts, rules, &demand, history, now);
    history.record_recommendation(now, recommended.replicas, rules.stabilization);
    let highest = history.highest_recommendation(now, rules.stabilization).unwrap_or(recommended.replicas);
    // What was recommended earlier keeps replicas that are there; it adds none.
    let kept = recommended.replicas.max(facts.current.min(highest));
    let desired = rules.bounded(kept);
    let held = match desired.cmp(&kept) {
        Ordering::Less => Some(Limit::Max),
        Ordering::Greater => Some(Limit::Min),
        Ordering::Equal if kept > recommended.replicas => Some(Limit::Stabilization),
        Ordering::Equal => recommended.unread().then_some(Limit::UnreadJobType),
    };
    let (step, stopped) = match desired.cmp(&facts.current) {
        Ordering::Equal => (Step::Hold, None),
        Ordering::Greater => raise(facts.current, desired, rules, history, now),
        Ordering::Less => lower(facts, rules, desired),
    };
    let may_fall = desired <= facts.current && desired > rules.bounded(0);
    let changes = [
        recommended.changes_in,
        history.falls_below(desired, now, rules.stabilization).filter(|_| may_fall),
        history.refills_in(now).filter(|_| stopped == Some(Limit::UpRate)),
    ];
    let account = Account { facts, rules, demand: &demand, recommended, kept, held, step: &step, stopped };
    let reason = account.sentence();
    let next_change = changes.into_iter().flatten().min().map(|change| change.min(LOOK_AGAIN));
    Decision { desired, step, reason, limited_by: stopped.or(held), next_change }
}

/// "`maxScaleUpPerMinute` bounds what is added within any 60 seconds." It bounds growth, not `minReplicas`; and from 0
/// to 1 it lets pass once a minute, whatever was added before.
fn raise(current: i32, desired: i32, rules: &Rules, history: &History, now: Instant) -> (Step, Option<Limit>) {
    let Some(bound) = rules.max_up_per_minute.filter(|bound| *bound > 0) else { return (Step::Scale(desired), None) };
    let left = match bound.saturating_sub(history.added_within_minute(now)) {
        0 if current == 0 && !history.woken_within_minute(now) => 1,
        left => left,
    };
    let to = desired.min(current.saturating_add_unsigned(left).max(rules.min));
    let limit = (to < desired).then_some(Limit::UpRate);
    (if to > current { Step::Scale(to) } else { Step::Hold }, limit)
}
