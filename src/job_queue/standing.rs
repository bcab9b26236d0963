//! Whether a queue's target is its own to scale, and why not.

use super::keeper::Keeper;
use super::status::{Problem, State};
use super::workers;
use crate::api::condition::reason;
use crate::scaling::rivals::Standing;

impl Keeper {
    /// Why the target is not ours to scale now.
    pub(super) fn scaling_problem(&self) -> Option<Problem> {
        if let State::Bad(problem) = &self.workers {
            return Some(problem.clone());
        }
        let problem =
            |reason: &str, message: String, stalled| Some(Problem { reason: reason.into(), message, stalled });
        let target =
            workers::scale_target(&self.queue).map_or_else(String::new, |one| format!("{} {}", one.kind, one.name));
        match self.scaler.claim.as_ref()?.standing() {
            Standing::Ours => None,
            Standing::NotKnownYet => problem(
                reason::LOOKING_FOR_AUTOSCALERS,
                "whether another autoscaler scales the target is not known yet".into(),
                false,
            ),
            Standing::Autoscaler { kind, name } => problem(
                reason::SCALED_BY_ANOTHER,
                format!(
                    "the {kind} {name} scales {target} too: delete it, or remove spec.scaling here; nothing is scaled meanwhile"
                ),
                true,
            ),
            Standing::OlderQueue { name } => problem(
                reason::TARGET_TAKEN,
                format!(
                    "the older JobQueue {name} scales {target} too: remove spec.scaling from one of them; this one scales nothing meanwhile"
                ),
                true,
            ),
        }
    }
}
