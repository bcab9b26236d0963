//! Conditions and their reasons, as constants of the API, and the rule for when a transition time moves.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// Whether everything that the resource asks for is so. kstatus reads it.
pub const READY: &str = "Ready";
/// Work is under way to make it so. kstatus reads it.
pub const RECONCILING: &str = "Reconciling";
/// It can't become so before a person changes something. kstatus reads it.
pub const STALLED: &str = "Stalled";
/// Whether Redis answers.
pub const REDIS_REACHABLE: &str = "RedisReachable";
/// Whether caps and pauses in Redis are the resource's.
pub const CONCURRENCY_APPLIED: &str = "ConcurrencyApplied";
/// Whether lock counts match the jobs that run.
pub const LOCKS_CONSISTENT: &str = "LocksConsistent";
/// Whether the worker pods are there to look at.
pub const WORKERS_AVAILABLE: &str = "WorkersAvailable";

/// Whether poolkeeper sizes the workers, where `spec.scaling` asks for it.
pub const SCALING_ACTIVE: &str = "ScalingActive";

/// Whether the workers that run also beat.
pub const WORKERS_RESPONSIVE: &str = "WorkersResponsive";

/// Reasons of conditions. What Redis failed with has its reasons in [`crate::redis::failure::Reason`].
pub mod reason {
    /// All is as asked for.
    pub const AS_SPECIFIED: &str = "AsSpecified";
    /// The first pass has not ended yet.
    pub const FIRST_PASS: &str = "FirstPass";
    /// Redis answered the last pass.
    pub const CONNECTED: &str = "Connected";
    /// Caps and pauses are held, and a change is undone within milliseconds.
    pub const HELD: &str = "Held";
    /// Caps and pauses are looked at every second, since Redis does not let us track keys.
    pub const POLLED: &str = "Polled";
    /// No job type asks for a cap or a pause.
    pub const NOTHING_TO_HOLD: &str = "NothingToHold";
    /// An older `JobQueue` of this cluster names the same job type.
    pub const NAMED_BY_OLDER_QUEUE: &str = "NamedByOlderJobQueue";
    /// An operator of another cluster holds the same job type.
    pub const CLAIMED_BY_OTHER_CLUSTER: &str = "ClaimedByOtherCluster";
    /// A key of a job type has a type that no worker gives it.
    pub const WRONG_KEY_TYPE: &str = "WrongKeyType";
    /// The annotation stops all management.
    pub const PAUSED: &str = "Paused";
    /// Redis remembers a newer version of this resource than this replica has seen.
    pub const FENCED: &str = "Fenced";
    /// Counts match.
    pub const CONSISTENT: &str = "Consistent";
    /// Counts don't match, or not everything could be settled yet.
    pub const REPAIRING: &str = "Repairing";
    /// All workers that run beat.
    pub const BEATING: &str = "Beating";
    /// Workers whose process runs say nothing.
    pub const SILENT_WORKERS: &str = "SilentWorkers";
    /// Many workers fell silent at once; they are held until it is sure that it isn't Redis or us.
    pub const MANY_SILENT: &str = "ManySilentAtOnce";
    /// A Secret or `ConfigMap`, or a key in it, is missing or not usable.
    pub const SECRET_MISSING: &str = "SecretNotFound";
    /// Reading a Secret or `ConfigMap` is not allowed.
    pub const SECRET_FORBIDDEN: &str = "SecretForbidden";
    /// The URL or certificate can't be used.
    pub const INVALID_REDIS: &str = "InvalidRedis";
    /// No workers are named: they run outside of the cluster.
    pub const OUTSIDERS_ONLY: &str = "OutsidersOnly";
    /// The workers' pods are not known yet.
    pub const LOOKING_FOR_WORKERS: &str = "LookingForWorkers";
    /// The workers' pods are known.
    pub const WORKERS_FOUND: &str = "WorkersFound";
    /// The Deployment that the template would make exists and belongs to somebody else.
    pub const NAME_TAKEN: &str = "DeploymentNameTaken";
    /// The API server refused the Deployment made from the template.
    pub const TEMPLATE_REFUSED: &str = "TemplateRefused";
    /// Several pods or containers report the same host name, so silence alone decides.
    pub const SHARED_HOST_NAME: &str = "SharedHostName";
    /// The number of workers follows the work.
    pub const FOLLOWS_THE_WORK: &str = "FollowsTheWork";
    /// Whether another autoscaler scales the target is not known yet.
    pub const LOOKING_FOR_AUTOSCALERS: &str = "LookingForAutoscalers";
    /// A `HorizontalPodAutoscaler` or `ScaledObject` scales the same target.
    pub const SCALED_BY_ANOTHER: &str = "ScaledByAnother";
    /// The number of workers follows the work; whether another autoscaler scales the target may not be looked at.
    pub const AUTOSCALERS_FORBIDDEN: &str = "AutoscalersForbidden";
    /// An older `JobQueue` scales the same target.
    pub const TARGET_TAKEN: &str = "TargetTaken";
    /// Something else keeps writing the target's replicas.
    pub const REPLICAS_CONTENDED: &str = "ReplicasContended";
    /// Caps are about to be pushed.
    pub const PUSHING: &str = "Pushing";
    /// Nothing needs a person.
    pub const NOT_STALLED: &str = "NotStalled";
    /// Nothing is under way.
    pub const SETTLED: &str = "Settled";
    /// The resource is being deleted.
    pub const DELETING: &str = "Deleting";
}

/// A condition before it has a time and a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// Which condition.
    pub type_: &'static str,
    /// Yes, no, or not known (`None`).
    pub holds: Option<bool>,
    /// Why, in one word of [`reason`].
    pub reason: String,
    /// Why, in a sentence that says what to do.
    pub message: String,
}

impl Statement {
    /// A condition that holds.
    pub fn yes(type_: &'static str, reason: &str, message: impl Into<String>) -> Self {
        Self { type_, holds: Some(true), reason: reason.into(), message: message.into() }
    }

    /// A condition that does not hold.
    pub fn no(type_: &'static str, reason: &str, message: impl Into<String>) -> Self {
        Self { type_, holds: Some(false), reason: reason.into(), message: message.into() }
    }

    /// A condition of which nothing is known.
    pub fn unknown(type_: &'static str, reason: &str, message: impl Into<String>) -> Self {
        Self { type_, holds: None, reason: reason.into(), message: message.into() }
    }
}

/// The conditions that the statements make, with `before`'s transition times kept where the status did not change.
#[must_use]
pub fn conditions(statements: &[Statement], before: &[Condition], generation: i64, now: Timestamp) -> Vec<Condition> {
    statements
        .iter()
        .map(|statement| {
            let status = match statement.holds {
                Some(true) => "True",
                Some(false) => "False",
                None => "Unknown",
            };
            let since = before
                .iter()
                .find(|old| old.type_ == statement.type_ && old.status == status)
                .map_or(Time(now), |old| old.last_transition_time.clone());
            Condition {
                type_: statement.type_.into(),
                status: status.into(),
                reason: statement.reason.clone(),
                message: bounded(&statement.message),
                last_transition_time: since,
                observed_generation: Some(generation),
            }
        })
        .collect()
}

/// The API server takes messages of up to 32768 characters; a page of text helps nobody, so far less is kept.
fn bounded(message: &str) -> String {
    const LIMIT: usize = 1024;
    if message.chars().count() <= LIMIT {
        return message.to_owned();
    }
    message.chars().take(LIMIT - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let first = conditions(&[Statement::no(READY, reason::FIRST_PASS, "a")], &[], 1, at(10));
        let same = conditions(&[Statement::no(READY, reason::FENCED, "b")], &first, 2, at(20));
        assert_eq!(same[0].last_transition_time, Time(at(10)), "reason and message may change without a transition");
        assert_eq!(same[0].observed_generation, Some(2));
        let turned = conditions(&[Statement::yes(READY, reason::AS_SPECIFIED, "")], &same, 2, at(30));
        assert_eq!(turned[0].last_transition_time, Time(at(30)));
    }

    #[test]
    fn long_messages_are_cut_at_a_character() {
        let long = conditions(&[Statement::no(READY, "X", "ü".repeat(5000))], &[], 1, at(1));
        assert_eq!(long[0].message.chars().count(), 1024);
        assert!(long[0].message.ends_with('…'));
    }
}
