//! Which container runs a pool.

use serde::{Deserialize, Serialize};

/// A container that runs, or may run, a pool.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// Cluster of the pod.
    pub cluster: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Uid of the pod.
    pub pod_uid: String,
    /// Name of the container in the pod.
    pub container: String,
    /// Id of the container as its kubelet reports it, such as `containerd://…`.
    pub container_id: String,
}

/// What ties a pool to the container that runs it. Kept in Redis, so that a restarted operator still has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    /// One candidate: the pool is bound. Several: one of them runs it, unknown which.
    pub candidates: Vec<Candidate>,
}
