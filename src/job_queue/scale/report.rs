//! What is told of scaling: in a condition, and in the status.

use std::time::Instant;

use super::Scaler;
use crate::api::condition::reason;
use crate::api::status::ScalingStatus;
use crate::job_queue::status::{Problem, State};

impl Scaler {
    /// Whether replicas are sized, or why not; what a person should mend though they are.
    #[must_use]
    pub fn state(&self) -> State<Option<String>> {
        match (self.problem.as_ref().or(self.failure.as_ref()), &self.decision) {
            (Some(problem), _) if problem.reason == reason::LOOKING_FOR_AUTOSCALERS => State::Pending,
            (Some(problem), _) => State::Bad(problem.clone()),
            (None, Some(_)) => {
                let unlisted = self.unlisted();
                match self.contention.problem(Instant::now()).or_else(|| self.unread.clone()) {
                    None => State::Good(unlisted),
                    Some(problem) => {
                        let message = [problem.message].into_iter().chain(unlisted).collect::<Vec<_>>().join("; ");
                        State::Bad(Problem { message, ..problem })
                    }
                }
            }
            (None, None) => State::Pending,
        }
    }

    /// For the status.
    #[must_use]
    pub fn status(&self) -> Option<ScalingStatus> {
        let decision = self.decision.as_ref()?;
        Some(ScalingStatus {
            desired_replicas: decision.desired,
            reason: decision.reason.clone(),
            limited_by: decision.limited_by.map(|limit| limit.name().to_owned()),
            last_scale_time: self.last_scale,
        })
    }

    /// That rivals may be there which we may not see.
    fn unlisted(&self) -> Option<String> {
        let rules = self.claim.as_ref()?.missing_rules();
        (!rules.is_empty()).then(|| {
            format!(
                "poolkeeper may not {}, so it can't tell whether another autoscaler scales the target too: add that to its role",
                rules.join(", nor ")
            )
        })
    }
}
