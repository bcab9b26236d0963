//! What one pod's containers did, put together from all that was ever reported of them.
//!
//! Events coalesce and a kubelet remembers two containers for each name, so a record keeps every container that was
//! once seen. What a record knows only grows: an end is final, whatever a late event says.

use std::sync::Arc;
use std::time::Instant;

use super::{EndBound, WorkerPod};
use crate::protocol::EpochSeconds;
use crate::reaper::container::{ContainerStatus, End, Report};

/// How many runs of one pod are kept; the oldest ended ones go first.
const KEPT_RUNS: usize = 16;
/// Seconds by which `startedAt` may be later than the second in which the process started.
///
/// Source: containerd `internal/cri/server/container_start.go` takes the time after the task was started, by when its
/// process runs; whole seconds add one, and a busy node another.
pub const STARTED_LATE: i64 = 2;

/// One pod, its containers, and how it went.
#[derive(Debug, Clone)]
pub struct PodRecord {
    /// The pod as last seen.
    pub pod: Arc<WorkerPod>,
    /// When we first saw it.
    pub first_seen: Instant,
    /// When we first saw its phase to be Failed or Succeeded.
    pub over_seen: Option<Instant>,
    /// Set when its object is gone.
    pub gone: Option<Gone>,
    /// Every container that was seen, in the order in which they were first seen.
    pub runs: Box<[ContainerRun]>,
}

/// How a pod's object went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone {
    /// When we learnt of it.
    pub seen: Instant,
    /// Whether the watch told us; otherwise a later list did not have it.
    pub told: bool,
}

/// One container, from its start to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerRun {
    /// Name of the container in the pod's spec.
    pub container: Arc<str>,
    /// Its id.
    pub id: Arc<str>,
    /// `startedAt`, of the node's clock.
    pub started_at: Option<EpochSeconds>,
    /// The first second of the node's clock at which a process of it can have started.
    pub earliest_start: Option<EpochSeconds>,
    /// When we first saw it.
    pub first_seen: Instant,
    /// What became of it.
    pub state: RunState,
}

/// What was reported of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunState {
    /// Its kubelet says that it runs.
    Running,
    /// Terminated.
    Ended {
        /// How.
        end: End,
        /// When we saw it.
        seen: Instant,
    },
    /// Its pod started another one in its place; the terminated state was never seen.
    Replaced {
        /// `startedAt` of the earliest known successor.
        before: EndBound,
        /// When we saw it.
        seen: Instant,
    },
    /// Its kubelet reports it no longer, but no other one either.
    Unreported {
        /// When we saw it.
        seen: Instant,
    },
}

impl RunState {
    /// Whether it is known to have ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Ended { .. } | Self::Replaced { .. })
    }
}

/// What is known of a container, all its pod's circumstances taken together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Its kubelet says that it runs.
    Running,
    /// Terminated.
    Ended {
        /// How.
        end: End,
        /// When we saw it.
        seen: Instant,
    },
    /// Its pod started another one in its place.
    Replaced {
        /// `startedAt` of the earliest known successor.
        before: EndBound,
        /// When we saw it.
        seen: Instant,
    },
    /// Its kubelet ended the whole pod.
    PodEnded {
        /// The pod's `status.reason`, such as `Evicted`.
        reason: Arc<str>,
        /// When we saw it.
        seen: Instant,
    },
    /// Nobody can tell whether it runs.
    Unknown(WhyUnknown),
}

/// Why nobody can tell whether a container runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyUnknown {
    /// The pod's object is gone, and its container was last seen running.
    PodGone,
    /// The pod was set to Failed or Succeeded, but not by its kubelet, and its container was last seen running.
    PodOver,
    /// The kubelet reports the container no longer.
    NotReported,
    /// No pod has this host name.
    NoPod,
}

impl PodRecord {
    /// The record of a pod that is seen for the first time.
    #[must_use]
    pub fn new(pod: Arc<WorkerPod>, now: Instant) -> Self {
        let empty = Self { pod: pod.clone(), first_seen: now, over_seen: None, gone: None, runs: Box::default() };
        empty.advanced(pod, now)
    }

    /// The record after the pod was seen once more.
    #[must_use]
    pub fn advanced(&self, pod: Arc<WorkerPod>, now: Instant) -> Self {
        let mut runs = self.runs.to_vec();
        for status in &pod.containers {
            let restarts_known = self.pod.container(&status.name).map_or(0, |known| known.restart_count);
            note(&mut runs, status, restarts_known, now);
        }
        while runs.len() > KEPT_RUNS {
            let oldest = runs.iter().position(|run| run.state.is_over()).unwrap_or(0);
            runs.remove(oldest);
        }
        let over_seen = self.over_seen.or_else(|| pod.is_over().then_some(now));
        Self { pod, first_seen: self.first_seen, over_seen, gone: None, runs: runs.into() }
    }

    /// The record after the pod's object was found to be gone.
    #[must_use]
    pub fn departed(&self, told: bool, now: Instant) -> Self {
        Self { gone: Some(Gone { seen: now, told }), ..self.clone() }
    }

    /// What is known of one container of this pod, seen by us or not (a binding may be older than we are).
    #[must_use]
    pub fn fate(&self, container: &str, id: &str) -> Fate {
        let Some(run) = self.runs.iter().find(|run| &*run.id == id) else {
            return self.fate_of_unseen(container);
        };
        match &run.state {
            RunState::Ended { end, seen } => return Fate::Ended { end: end.clone(), seen: *seen },
            RunState::Replaced { before, seen } => return Fate::Replaced { before: *before, seen: *seen },
            RunState::Running | RunState::Unreported { .. } => {}
        }
        let reported = run.state == RunState::Running;
        if let Some(seen) = self.over_seen {
            let still_listed = self.pod.container(container).is_some_and(|status| status.running().is_some());
            if self.pod.ended_by_kubelet() && !still_listed {
                return Fate::PodEnded { reason: self.pod.reason.clone().unwrap_or_else(|| "Failed".into()), seen };
            }
            return Fate::Unknown(WhyUnknown::PodOver);
        }
        match (self.gone, reported) {
            (Some(_), _) => Fate::Unknown(WhyUnknown::PodGone),
            (None, true) => Fate::Running,
            (None, false) => Fate::Unknown(WhyUnknown::NotReported),
        }
    }

    /// A container that was bound before we saw this pod, and that the pod no longer reports.
    fn fate_of_unseen(&self, container: &str) -> Fate {
        if let Some(seen) = self.over_seen
            && self.pod.ended_by_kubelet()
        {
            return Fate::PodEnded { reason: self.pod.reason.clone().unwrap_or_else(|| "Failed".into()), seen };
        }
        let successors = || self.runs.iter().filter(|run| &*run.container == container);
        let Some(first) = successors().next() else {
            let why = match (self.gone, self.over_seen) {
                (Some(_), _) => WhyUnknown::PodGone,
                (None, Some(_)) => WhyUnknown::PodOver,
                (None, None) => WhyUnknown::NotReported,
            };
            return Fate::Unknown(why);
        };
        Fate::Replaced { before: earliest(successors()), seen: first.first_seen }
    }
}

fn earliest<'a>(runs: impl Iterator<Item = &'a ContainerRun>) -> EndBound {
    runs.filter_map(|run| run.started_at).min()
}

/// Takes one container's status into the runs of its pod.
fn note(runs: &mut Vec<ContainerRun>, status: &ContainerStatus, restarts_known: i32, now: Instant) {
    if is_outdated(runs, status, restarts_known) {
        return;
    }
    for report in status.reports() {
        let starts =
            if status.current.as_ref() == Some(report) { status.restart_count } else { status.restart_count - 1 };
        note_report(runs, &status.name, starts, report, now);
    }
    let reported = |id: &str| status.reports().any(|report| &*report.id == id);
    let before = status.reports().filter_map(|report| report.started_at).min();
    for run in runs.iter_mut().filter(|run| run.container == status.name) {
        if run.state.is_over() || reported(&run.id) {
            continue;
        }
        match (&status.current, &run.state) {
            (Some(_), _) => run.state = RunState::Replaced { before, seen: now },
            (None, RunState::Running) => run.state = RunState::Unreported { seen: now },
            (None, _) => {}
        }
    }
}

/// Whether a status is older than what is known: it says nothing of the newest container, but of one before it.
fn is_outdated(runs: &[ContainerRun], status: &ContainerStatus, restarts_known: i32) -> bool {
    let Some(newest) = runs.iter().rev().find(|run| run.container == status.name) else { return false };
    let Some(latest) = status.reports().last() else { return false };
    let known = runs.iter().find(|run| run.id == latest.id);
    match known {
        Some(run) => run.id != newest.id || (latest.end.is_none() && run.state.is_over()),
        None => status.restart_count < restarts_known,
    }
}

/// Takes in one container, before which its pod had started `before` others of its name.
fn note_report(runs: &mut Vec<ContainerRun>, container: &Arc<str>, before: i32, report: &Report, now: Instant) {
    let state = match &report.end {
        Some(end) => RunState::Ended { end: end.clone(), seen: now },
        None => RunState::Running,
    };
    if let Some(run) = runs.iter_mut().find(|run| run.id == report.id) {
        run.started_at = run.started_at.or(report.started_at);
        run.earliest_start = run.earliest_start.or(run.started_at);
        if !matches!(run.state, RunState::Ended { .. }) {
            run.state = state;
        }
        return;
    }
    let predecessor = runs.iter().rev().find(|run| run.container == *container);
    let earliest_start = report.started_at.map(|start| earliest_start(start, before, predecessor));
    runs.push(ContainerRun {
        container: container.clone(),
        id: report.id.clone(),
        started_at: report.started_at,
        earliest_start,
        first_seen: now,
        state,
    });
}

/// The first second at which a process of a container can have started that reports `start`: a little earlier, but not
/// while the one before it, of which `before` were started, may have run.
fn earliest_start(start: EpochSeconds, before: i32, predecessor: Option<&ContainerRun>) -> EpochSeconds {
    let late = EpochSeconds(start.0.saturating_sub(STARTED_LATE));
    match predecessor.map(|run| &run.state) {
        None if before <= 0 => late,
        Some(RunState::Ended { end: End { finished_at: Some(end), .. }, .. }) => {
            late.max(EpochSeconds(end.0.saturating_add(1))).min(start)
        }
        _ => start,
    }
}
