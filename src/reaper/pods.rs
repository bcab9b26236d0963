//! The pods of the cluster, as far as a verdict needs them, and what became of their containers.
//!
//! - [`object`]: a pod as the API server sends it, trimmed.
//! - [`record`]: pure: what one pod's containers did, over all its events.
//! - [`index`]: all records, with a diff on every relist, and who is told of a change.
//! - `shared`: what many pods have in common, kept once.
//! - [`watch`]: feeds the index.
//!
//! Carries out "Missed events don't matter: kube's watch gives no Delete for objects that vanish while it is down: diff
//! on every relist and on a timer".

pub mod index;
pub mod object;
pub mod record;
mod shared;
pub mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use index::PodIndex;
pub use record::{ContainerRun, Fate, Gone, PodRecord, RunState, STARTED_LATE, WhyUnknown};

use crate::protocol::EpochSeconds;
use crate::reaper::container::ContainerStatus;
use crate::reaper::host::HostKey;

/// Labels of a pod.
pub type Labels = BTreeMap<String, String>;

/// One pod as last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerPod {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// The host names that its processes may report.
    pub hosts: Box<[HostKey]>,
    /// `status.phase`.
    pub phase: Arc<str>,
    /// `status.reason`, such as `Evicted`.
    pub reason: Option<Arc<str>>,
    /// Whether its deletion was asked for (`metadata.deletionTimestamp`). It may work on through its grace period.
    pub deleting: bool,
    /// Whether its condition `Ready` is true.
    pub ready: bool,
    /// The annotation `controller.kubernetes.io/pod-deletion-cost`; one that is no number counts as absent.
    pub deletion_cost: Option<i32>,
    /// `metadata.labels`; equal sets are shared between pods.
    pub labels: Arc<Labels>,
    /// The owner that controls it.
    pub owner: Option<Controller>,
    /// Its containers, without init containers and sidecars.
    pub containers: Box<[ContainerStatus]>,
}

impl WorkerPod {
    /// Whether the phase is Failed or Succeeded.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(&*self.phase, "Failed" | "Succeeded")
    }

    /// Whether its kubelet itself ended the pod, so that its containers are known to have ended even where no status
    /// says so. Other writers of Failed, the pod garbage collector above all, don't know.
    ///
    /// Source: kubernetes `pkg/kubelet/eviction/eviction_manager.go` (`Evicted`), `pkg/kubelet/nodeshutdown`
    /// (`Terminated`; `NodeShutdown` and `Shutdown` before 1.22), `pkg/kubelet/preemption` (`Preempting`),
    /// `pkg/kubelet/active_deadline.go` (`DeadlineExceeded`).
    #[must_use]
    pub fn ended_by_kubelet(&self) -> bool {
        let reason = self.reason.as_deref().unwrap_or_default();
        self.is_over()
            && matches!(
                reason,
                "Evicted" | "Terminated" | "NodeShutdown" | "Shutdown" | "Preempting" | "DeadlineExceeded"
            )
    }

    /// The status of one container.
    #[must_use]
    pub fn container(&self, name: &str) -> Option<&ContainerStatus> {
        self.containers.iter().find(|status| &*status.name == name)
    }
}

/// The owner reference with `controller: true`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// Its API version.
    pub api_version: Arc<str>,
    /// Its kind.
    pub kind: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its uid.
    pub uid: Arc<str>,
}

/// The end of a run as far as it limits which pools may have been in it: a pool that started at or after this second
/// of the node's clock was not, or (at it) may not have been.
pub type EndBound = Option<EpochSeconds>;

#[cfg(test)]
mod tests;
