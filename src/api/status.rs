//! What poolkeeper reports of a `JobQueue`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What poolkeeper last saw and did. Counts are written at most every ten seconds; live numbers are metrics.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobQueueStatus {
    /// The generation of the spec that the rest of the status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What is so and what is not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Jobs that wait, of all types of this queue.
    pub waiting: i64,
    /// Of those, jobs that could start now: not paused, and not held back by a cap.
    pub runnable: i64,
    /// Jobs that run, of all types of this queue.
    pub running: i64,
    /// Worker pods.
    pub replicas: i32,
    /// The label selector of the worker pods, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// What scaling decided last; absent without `spec.scaling`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<ScalingStatus>,
    /// Each job type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub jobs: Vec<JobStatus>,
    /// The worker pools.
    pub pools: PoolCounts,
    /// The last time that something was given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_reap: Option<LastReap>,
    /// What was done since the Redis namespace is managed.
    pub totals: Totals,
    /// The last entry of the record in Redis that Events were made of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_through: Option<String>,
}

/// What scaling decided.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScalingStatus {
    /// Replicas that the work asks for, within the bounds.
    pub desired_replicas: i32,
    /// How the number came about, and what it waits for, in words.
    pub reason: String,
    /// What keeps the target from having what the work asks for, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<String>,
    /// When the target's replicas were last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_scale_time: Option<Timestamp>,
}

/// One job type. All counts are of one atomic read.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// Its name.
    pub name: String,
    /// Jobs that wait.
    pub waiting: i64,
    /// Jobs that are scheduled, or wait to be retried, and whose time has come; counted where `spec.scaling` is set.
    #[serde(skip_serializing_if = "is_zero")]
    pub due: i64,
    /// Of those that wait or are due, jobs that could start now.
    pub runnable: i64,
    /// Jobs that run.
    pub running: i64,
    /// Max concurrency in Redis; 0: no cap.
    pub max_concurrency: i64,
    /// The lock count in Redis.
    pub locks: i64,
    /// Whether no job of this type is started.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// How long the job that runs next has waited, by the clocks of whoever enqueued it and of Redis, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_wait_seconds: Option<i64>,
    /// What keeps this job type from being looked after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Worker pools by what is known of them.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolCounts {
    /// Pools whose worker lives.
    pub living: i32,
    /// Pools whose fate is not decided yet.
    pub undecided: i32,
    /// Pools found dead and not settled yet.
    pub dead: i32,
}

/// One reap.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastReap {
    /// When, by Redis's clock.
    pub time: Option<Timestamp>,
    /// The pod whose worker died, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Why it counts as dead.
    pub proof: String,
    /// How many pools were settled.
    pub pools: i64,
    /// How many jobs went back to their queue.
    pub jobs: i64,
    /// How many locks were freed.
    pub locks: i64,
}

/// Counters since the Redis namespace is managed.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Totals {
    /// Pools found dead and settled.
    pub pools_reaped: i64,
    /// Jobs given back to their queue.
    pub jobs_requeued: i64,
    /// Locks freed or put right, that no job held.
    pub locks_freed: i64,
    /// Counts put right in living pools.
    pub repairs: i64,
    /// Caps that somebody else overwrote and that were put back.
    pub caps_overwritten: i64,
    /// Jobs that ran above a cap at the moments when it was put back.
    pub jobs_above_cap: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &i64) -> bool {
    *count == 0
}
