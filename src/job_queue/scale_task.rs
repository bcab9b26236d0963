//! What the background writes for scaling, and what comes of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::background::Done;
use super::context::Context;
use crate::reaper::owner::ResolvedTarget;
use crate::scaling::apply::{self, ScaleError};
use crate::scaling::{PodFacts, PodUid};

/// Bound on one write.
const BOUND: Duration = Duration::from_secs(15);

/// What the background is to write.
#[derive(Debug, Clone)]
pub enum Wanted {
    /// Replicas.
    Replicas(Box<Change>),
    /// Deletion costs, by pod name.
    Marks(BTreeMap<Arc<str>, Option<i32>>),
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

/// Deletion costs by the names of their pods.
#[must_use]
pub fn by_name(costs: &BTreeMap<PodUid, Option<i32>>, pods: &[PodFacts]) -> BTreeMap<Arc<str>, Option<i32>> {
    let cost = |pod: &PodFacts| Some((pod.name.clone(), *costs.get(&PodUid(pod.uid.clone()))?));
    pods.iter().filter_map(cost).collect()
}
