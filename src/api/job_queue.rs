//! `JobQueue`: which Redis, which job types, how many of each may run at once, and which workers run them.

#![expect(clippy::duplicated_attributes, reason = "each printer column has a path and a type of its own")]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::JobQueueStatus;
use super::template::{DeploymentStrategyJson, PodTemplateJson, deployment_strategy_schema, pod_template_schema};

/// A queue of jobs in Redis and the worker pools that run them.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "poolkeeper.dev",
    version = "v1alpha1",
    kind = "JobQueue",
    plural = "jobqueues",
    shortname = "jq",
    category = "poolkeeper",
    namespaced,
    status = "JobQueueStatus",
    derive = "PartialEq",
    doc = "A queue of jobs in Redis and the worker pools that run them.",
    scale(
        spec_replicas_path = ".spec.workers.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether caps are held and workers are looked after"
    ),
    printcolumn(name = "Waiting", type_ = "integer", json_path = ".status.waiting", description = "Jobs that wait"),
    printcolumn(name = "Running", type_ = "integer", json_path = ".status.running", description = "Jobs that run"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.replicas", description = "Worker pods"),
    printcolumn(
        name = "Desired",
        type_ = "integer",
        json_path = ".status.scaling.desiredReplicas",
        description = "Worker pods that the work asks for"
    ),
    printcolumn(
        name = "Last reap",
        type_ = "date",
        json_path = ".status.lastReap.time",
        description = "When a dead worker's jobs were last given back"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1,
        description = "Why it is ready or not"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Age of the resource"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("!has(self.scaling) || (has(self.workers) && (has(self.workers.scaleTargetRef) || has(self.workers.template)))", "spec.scaling needs workers that can be scaled: set spec.workers.scaleTargetRef or spec.workers.template"),
    validation = ("!has(self.scaling) || !has(self.workers) || !has(self.workers.replicas)", "spec.workers.replicas can't be set beside spec.scaling, which decides the number: set spec.scaling.minReplicas and maxReplicas")
)]
pub struct JobQueueSpec {
    /// The workers are gocraft/work programs (Go), or of a fork that keeps its Redis format.
    pub gocraft_work: GocraftWorkSpec,
    /// The Redis server that the workers take their jobs from.
    pub redis: RedisSpec,
    /// The job types whose cap or pause poolkeeper holds. All job types of a dead pool are given back, listed here or not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub jobs: Vec<JobSpec>,
    /// The workers. Absent: workers run outside of this cluster, and only their silence can tell that they are dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkersSpec>,
    /// How many workers there are, by the work that can run now. Absent: replicas are left alone, or as workers.replicas
    /// says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<ScalingSpec>,
    /// How dead workers are found and what is done about them.
    #[serde(default)]
    pub reaping: ReapingSpec,
    /// Retain: leave caps and pauses in Redis when this resource is deleted. Release: take back what was pushed.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// What is particular to gocraft/work.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GocraftWorkSpec {
    /// The namespace that the workers were started with: the first part of every key in Redis. It can't be changed.
    #[schemars(length(max = 253))]
    #[x_kube(validation = ("self == oldSelf", "spec.gocraftWork.namespace can't be changed: make another JobQueue for another namespace in Redis"))]
    pub namespace: String,
}

/// Where Redis is and how to get in.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("has(self.url) != has(self.urlFrom)", "set exactly one of url and urlFrom"),
    validation = ("!has(self.tls) || !has(self.url) || self.url.startsWith('rediss://')", "tls needs a url that begins with rediss://")
)]
pub struct RedisSpec {
    /// `redis://host:port/database`, or `rediss://…` for TLS. Keep passwords out of it: use passwordFrom or urlFrom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = r"^rediss?://[^\s]+$"))]
    pub url: Option<String>,
    /// The same, out of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_from: Option<SecretSource>,
    /// The ACL user's name, out of a Secret. It is read again when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username_from: Option<SecretSource>,
    /// The password, out of a Secret. It is read again when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_from: Option<SecretSource>,
    /// TLS beyond the public certificate authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsSpec>,
}

/// How the server's certificate is checked and which certificate is shown to it.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("has(self.certFrom) == has(self.keyFrom)", "a client certificate needs both certFrom and keyFrom")
)]
pub struct TlsSpec {
    /// Certificate authorities (PEM) that the server's certificate must come from, instead of the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_from: Option<CaSource>,
    /// The client certificate (PEM).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_from: Option<SecretSource>,
    /// The client certificate's private key (PEM).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_from: Option<SecretSource>,
    /// The name that the server's certificate must carry. Absent: the host in the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub server_name: Option<String>,
    /// Don't check the server's certificate. Whoever is between can then read and change everything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_skip_verify: bool,
}

/// A value out of a Secret of the same namespace.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretSource {
    /// The Secret and its key.
    pub secret_key_ref: KeyRef,
}

/// Certificate authorities out of a Secret or a `ConfigMap` of the same namespace.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("has(self.secretKeyRef) != has(self.configMapKeyRef)", "set exactly one of secretKeyRef and configMapKeyRef")
)]
pub struct CaSource {
    /// The Secret and its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyRef>,
    /// The `ConfigMap` and its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyRef>,
}

/// A key of a Secret or `ConfigMap`.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in its data.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// One job type whose cap or pause is held.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSpec {
    /// The job type's name, as in the workers' code.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// How many jobs of this type may run at once, over all workers. 0: no cap. Absent: what is in Redis is left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub max_concurrency: Option<i32>,
    /// true: no job of this type is started. false: a pause is taken back. Absent: what is in Redis is left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// Which workers run the jobs.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("!(has(self.scaleTargetRef) && has(self.template))", "set at most one of scaleTargetRef and template"),
    validation = ("!has(self.strategy) || has(self.template)", "strategy goes with template: a scale target has its own"),
    validation = ("!has(self.replicas) || has(self.template)", "replicas goes with template: scale the target itself")
)]
pub struct WorkersSpec {
    /// Workers that exist: a Deployment, or anything with a scale subresource, of the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_target_ref: Option<ScaleTargetRef>,
    /// Workers that poolkeeper runs: the pods of a Deployment that has the `JobQueue`'s name and belongs to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "pod_template_schema")]
    pub template: Option<PodTemplateJson>,
    /// With template: how its Deployment replaces pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "deployment_strategy_schema")]
    pub strategy: Option<DeploymentStrategyJson>,
    /// With template: how many pods. Absent: left to whoever scales the Deployment (1 at first).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub replicas: Option<i32>,
    /// Which containers of a pod run workers. Absent: all that are not sidecars.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)), extend("x-kubernetes-list-type" = "set"))]
    pub containers: Vec<String>,
    /// How many jobs one pod runs at once. Absent: read from the workers' heartbeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub concurrency: Option<i32>,
}

/// Something with a scale subresource, as for a `HorizontalPodAutoscaler`.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleTargetRef {
    /// Its API version.
    #[serde(default = "apps_v1")]
    #[schemars(length(min = 1, max = 317))]
    #[x_kube(validation = ("self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[a-z]([-a-z0-9]*[a-z0-9])?$')", "spec.workers.scaleTargetRef.apiVersion must be a group, / and a version, such as apps/v1, or a version alone, such as v1"))]
    pub api_version: String,
    /// Its kind.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = ("self.matches('^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$')", "spec.workers.scaleTargetRef.kind must be a kind as it is in manifests, such as Deployment"))]
    pub kind: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = ("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')", "spec.workers.scaleTargetRef.name must be the name of an object: small letters, digits, - and ., with a letter or digit at both ends and beside each dot"))]
    pub name: String,
}

fn apps_v1() -> String {
    "apps/v1".into()
}

/// How many workers there are, by the work that can run now: jobs that are due, not paused and not held back by a cap.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("self.minReplicas <= self.maxReplicas", "spec.scaling.minReplicas must not be above maxReplicas")
)]
pub struct ScalingSpec {
    /// Never fewer. 0: none while there is nothing to do.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100_000))]
    pub min_replicas: i32,
    /// Never more.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_replicas: i32,
    /// How many jobs, running or ready to run, one replica should have. Absent: as many as it runs at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub jobs_per_replica: Option<i32>,
    /// Grow also while the oldest job that could run has waited for longer than this, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub max_wait_seconds: Option<i32>,
    /// Shrink only to what was enough over the last so many seconds.
    #[serde(default = "three_hundred")]
    #[schemars(range(min = 0, max = 3_600))]
    pub scale_down_stabilization_seconds: i32,
    /// Replicas that may be added within any minute. 0: no bound.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100_000))]
    pub max_scale_up_per_minute: i32,
    /// Never fewer than the pods that run a job; idle pods go first.
    #[serde(default = "yes")]
    pub protect_busy_pods: bool,
}

fn three_hundred() -> i32 {
    300
}

fn yes() -> bool {
    true
}

/// How dead workers are found and what is done about them.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReapingSpec {
    /// Enforce: give back what dead workers held. Observe: decide and report, change nothing.
    #[serde(default)]
    pub mode: ReapingMode,
    /// How long a worker whose process's fate is unknown must have said nothing. Workers beat every 5 seconds.
    #[serde(default = "twelve")]
    #[schemars(range(min = 6, max = 3600))]
    pub heartbeat_timeout_seconds: i32,
    /// The same for workers on hosts that are no pods of this queue. 0: never reap them.
    #[serde(default = "sixty")]
    #[schemars(range(min = 0, max = 86400))]
    #[x_kube(validation = ("self == 0 || self >= 6", "spec.reaping.outsiderTimeoutSeconds must be 0 (never) or at least 6: workers beat every 5 seconds"))]
    pub outsider_timeout_seconds: i32,
}

fn twelve() -> i32 {
    12
}

fn sixty() -> i32 {
    60
}

impl Default for ReapingSpec {
    fn default() -> Self {
        Self { mode: ReapingMode::Enforce, heartbeat_timeout_seconds: twelve(), outsider_timeout_seconds: sixty() }
    }
}

/// What is done about dead workers.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReapingMode {
    /// Give back what they held.
    #[default]
    Enforce,
    /// Decide and report, change nothing.
    Observe,
}

/// What happens to caps and pauses when the resource is deleted.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeletionPolicy {
    /// They stay in Redis.
    #[default]
    Retain,
    /// Those that were pushed are taken back.
    Release,
}
