//! What one container status of a pod says: which container ran last, and how it ended.
//!
//! A kubelet reports at most two containers for each name: the current one in `state`, and the one before it in
//! `lastState`. Events coalesce, so a container that ended may show up in `lastState` alone, or never.

use std::sync::Arc;

use crate::protocol::EpochSeconds;

/// The reason that a kubelet gives when its runtime no longer knows a container: that it ended is a guess.
///
/// Source: kubernetes `pkg/kubelet/container/runtime.go`, `ContainerReasonStatusUnknown`.
const STATUS_UNKNOWN: &str = "ContainerStatusUnknown";

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// `finishedAt`, of the node's clock; `None` where the kubelet gave none.
    pub finished_at: Option<EpochSeconds>,
    /// `reason`, such as `OOMKilled`, `Error` or `Completed`.
    pub reason: Arc<str>,
    /// `exitCode`.
    pub exit_code: Option<i32>,
}

/// What a kubelet says of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Its id, such as `containerd://…`.
    pub id: Arc<str>,
    /// `startedAt`, of the node's clock.
    pub started_at: Option<EpochSeconds>,
    /// How it ended; `None` while it runs.
    pub end: Option<End>,
}

/// The status of all containers that one name of a pod has had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerStatus {
    /// Name of the container in the pod's spec.
    pub name: Arc<str>,
    /// The current one: running, or ended and not yet followed by another; `None` while one is waited for.
    pub current: Option<Report>,
    /// The one before it.
    pub last: Option<Report>,
    /// How often the kubelet started it anew.
    pub restart_count: i32,
}

impl ContainerStatus {
    /// A container that no kubelet has reported yet.
    #[must_use]
    pub fn waiting(name: Arc<str>) -> Self {
        Self { name, current: None, last: None, restart_count: 0 }
    }

    /// The running container, if one runs.
    #[must_use]
    pub fn running(&self) -> Option<&Report> {
        self.current.as_ref().filter(|report| report.end.is_none())
    }

    /// Both reports, the older first.
    pub fn reports(&self) -> impl Iterator<Item = &Report> {
        self.last.iter().chain(&self.current)
    }
}

/// The parts of a `terminated` state as the API has them.
#[derive(Debug, Clone, Default)]
pub struct TerminatedParts {
    /// `containerID`.
    pub id: Option<Arc<str>>,
    /// `startedAt`.
    pub started_at: Option<EpochSeconds>,
    /// `finishedAt`.
    pub finished_at: Option<EpochSeconds>,
    /// `reason`.
    pub reason: Option<Arc<str>>,
    /// `exitCode`.
    pub exit_code: Option<i32>,
}

/// A terminated state as a report; `None` where it is no proof of an end, or names no container.
///
/// `fallback_id` is the status' own `containerID`, used for the current state alone.
#[must_use]
pub fn ended(parts: TerminatedParts, fallback_id: Option<&Arc<str>>) -> Option<Report> {
    let reason = parts.reason.unwrap_or_else(|| "Unknown".into());
    if &*reason == STATUS_UNKNOWN {
        return None;
    }
    let id = parts.id.or_else(|| fallback_id.cloned()).filter(|id| !id.is_empty())?;
    let end = End { finished_at: parts.finished_at, reason, exit_code: parts.exit_code };
    Some(Report { id, started_at: parts.started_at, end: Some(end) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(id: Option<&str>, reason: &str) -> TerminatedParts {
        TerminatedParts {
            id: id.map(Into::into),
            finished_at: Some(EpochSeconds(9)),
            reason: Some(reason.into()),
            exit_code: Some(137),
            ..TerminatedParts::default()
        }
    }

    #[test]
    fn a_terminated_state_is_an_end_unless_the_kubelet_only_guesses() {
        let fallback: Arc<str> = "containerd://b".into();
        let report = ended(parts(Some("containerd://a"), "OOMKilled"), Some(&fallback)).unwrap();
        assert_eq!(&*report.id, "containerd://a");
        assert_eq!(report.end.unwrap().exit_code, Some(137));
        assert_eq!(&*ended(parts(None, "Error"), Some(&fallback)).unwrap().id, "containerd://b");
        assert_eq!(ended(parts(None, "Error"), None), None);
        assert_eq!(ended(parts(Some("containerd://a"), "ContainerStatusUnknown"), None), None);
    }
}
