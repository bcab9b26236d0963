//! What the background writes for scaling, and what comes of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::background::Done;
use super::context::Context;
use crate::reaper::owner::ResolvedTarget;
use crate::scaling::apply::{self, Before, Mark, ScaleError};
use crate::scaling::{PodFacts, PodUid};

/// Bound on one write.
const BOUND: Duration = Duration::from_secs(15);

/// What the background is to write.
#[derive(Debug, Clone)]
pub enum Wanted {
    /// Replicas.
    Replicas(Box<Change>),
    /// What becomes of pods' deletion costs, by their names.
    Marks(BTreeMap<Arc<str>, Mark>),
}

/// A change of replicas.
#[derive(Debug, Clone)]
pub struct Change {
    /// Of what.
    pub target: ResolvedTarget,
    /// What they were seen to be.
    pub from: i32,
    /// What they are to be.
    pub to: i32,
    /// To be lowered, and not after this: a pod that was idle may be busy by then. Nor during a rollout.
    pub lower_until: Option<Instant>,
    /// Whether to find out who else writes them.
    pub name_rival: bool,
    /// Why, in words.
    pub reason: String,
    /// When the look was begun that it follows from.
    pub decided_on: Instant,
}

/// Writes what is wanted, within a bound.
pub async fn carry_out(context: Arc<Context>, namespace: String, wanted: Wanted) -> Done {
    let client = context.client.clone();
    let slow = || ScaleError::Failed("the API server did not answer in time".into());
    match wanted {
        Wanted::Replicas(change) => {
            let write = async {
                let rival = if change.name_rival { apply::rival(&client, &change.target).await } else { None };
                let may = || context.leads() && change.lower_until.is_none_or(|until| Instant::now() <= until);
                let careful = change.lower_until.is_some();
                let outcome =
                    apply::set_replicas(&client, &change.target, change.from, change.to, careful, may).await?;
                Ok((outcome, rival))
            };
            let result = timeout(BOUND, write).await.unwrap_or_else(|_| Err(slow()));
            Done::Scaled(change, result)
        }
        Wanted::Marks(costs) => {
            let marked = timeout(BOUND, apply::mark(&client, &namespace, costs)).await;
            Done::Marked(marked.unwrap_or_else(|_| Err(slow())))
        }
    }
}

/// Deletion costs by the names of their pods. What somebody else gave a pod is kept, to be given back.
#[must_use]
pub fn by_name(costs: &BTreeMap<PodUid, Option<i32>>, pods: &[PodFacts]) -> BTreeMap<Arc<str>, Mark> {
    let mark = |pod: &PodFacts| {
        let mark = match *costs.get(&PodUid(pod.uid.clone()))? {
            None => Mark::Idle,
            Some(cost) => {
                let before = match pod.deletion_cost {
                    None => Before::Nothing,
                    Some(_) if pod.carries_ours() => Before::Ours,
                    Some(theirs) => Before::Theirs(theirs),
                };
                Mark::Busy { cost, before }
            }
        };
        Some((pod.name.clone(), mark))
    };
    pods.iter().filter_map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaling::pods::{BUSY_COST, HIGHEST_COST};
    use crate::scaling::tests::stage::pod;

    #[test]
    fn only_a_cost_that_is_not_ours_is_kept_to_be_given_back() {
        for (carried, wanted, mark) in [
            (None, Some(BUSY_COST), Mark::Busy { cost: BUSY_COST, before: Before::Nothing }),
            (Some(7), Some(BUSY_COST), Mark::Busy { cost: BUSY_COST, before: Before::Theirs(7) }),
            (Some(BUSY_COST), Some(HIGHEST_COST), Mark::Busy { cost: HIGHEST_COST, before: Before::Ours }),
            (Some(BUSY_COST), None, Mark::Idle),
        ] {
            let one = PodFacts { deletion_cost: carried, ..pod("a") };
            let costs = [(PodUid(one.uid.clone()), wanted)].into();
            assert_eq!(by_name(&costs, &[one, pod("b")]), [("a".into(), mark)].into(), "{carried:?}");
        }
    }
}
