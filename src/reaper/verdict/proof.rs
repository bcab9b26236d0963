//! Why a pool is dead, or what would decide it: for the reaping script, for Events, and for metrics.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::protocol::{EpochSeconds, PoolId};
use crate::reaper::binding::Place;
use crate::reaper::container::End;
use crate::reaper::host::HostKey;
use crate::reaper::pods::WhyUnknown;

/// What the reaping script must find of the pool's heartbeat, or refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Whatever it is: the process is known to have ended.
    Anything,
    /// The heartbeat that was judged.
    Unmoved(EpochSeconds),
    /// No heartbeat.
    Absent {
        /// Whether the set of worker pools named it all the same, as when a reaper died between its two deletions.
        listed: bool,
    },
}

/// A silence, as far as it was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quiet {
    /// How long it lasts already.
    pub silent_for: Duration,
    /// How long it must last.
    pub needed: Duration,
    /// When the counting began.
    pub since: Instant,
    /// What the heartbeat must still be.
    pub expect: Expect,
}

impl Quiet {
    /// Whether it lasted long enough.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.silent_for >= self.needed
    }

    /// How long it must still last.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.needed.saturating_sub(self.silent_for)
    }
}

/// Why a pool is dead.
#[derive(Debug, Clone, PartialEq)]
pub enum Proof {
    /// Its container terminated.
    ContainerEnded {
        /// The container.
        place: Place,
        /// How it ended.
        end: End,
    },
    /// Its pod started another container in place of its own; the end itself was never seen.
    ContainerReplaced {
        /// The container.
        place: Place,
    },
    /// Its kubelet ended the whole pod.
    PodEnded {
        /// The container.
        place: Place,
        /// The pod's `status.reason`.
        reason: Arc<str>,
    },
    /// All containers that could be its own ended, and no beat came since.
    NoBeatSinceEnd {
        /// One of them.
        place: Place,
        /// The silence since the end was seen.
        quiet: Quiet,
    },
    /// Nobody can tell whether its process runs, and it is silent.
    Silent {
        /// Why nobody can tell.
        why: WhyUnknown,
        /// Its host name.
        host: HostKey,
        /// Its container, where one is known.
        place: Option<Place>,
        /// The silence.
        quiet: Quiet,
    },
    /// Several have its host name, one of them ended, and it is silent.
    SharedHostSilent {
        /// The host name.
        host: HostKey,
        /// The one that ended.
        place: Place,
        /// The silence.
        quiet: Quiet,
    },
    /// A newer process runs in its container, and it is silent.
    Superseded {
        /// The newer process's pool.
        by: PoolId,
        /// The container.
        place: Place,
        /// The silence.
        quiet: Quiet,
    },
    /// Its host is nobody's pod, and it is silent.
    OutsiderSilent {
        /// Its host name.
        host: HostKey,
        /// The silence.
        quiet: Quiet,
    },
    /// It never beat while we looked, yet holds locks or jobs.
    UnknownPool {
        /// For how long.
        known_for: Duration,
        /// Whether the set of worker pools names it.
        listed: bool,
    },
    /// It was reaped within the last day; this is what it wrote late.
    ReapedBefore {
        /// What its heartbeat must still be.
        expect: Expect,
    },
}

impl Proof {
    /// Its name in Events, status and metrics: constant, in the case of a condition's reason.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::ContainerEnded { .. } => "ContainerEnded",
            Self::ContainerReplaced { .. } => "ContainerReplaced",
            Self::PodEnded { .. } => "PodEnded",
            Self::NoBeatSinceEnd { .. } => "NoBeatSinceEnd",
            Self::Silent { .. } => "Silent",
            Self::SharedHostSilent { .. } => "SharedHostSilent",
            Self::Superseded { .. } => "Superseded",
            Self::OutsiderSilent { .. } => "OutsiderSilent",
            Self::UnknownPool { .. } => "UnknownPool",
            Self::ReapedBefore { .. } => "ReapedBefore",
        }
    }

    /// Whether it holds however fresh the heartbeat is.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        matches!(self, Self::ContainerEnded { .. } | Self::ContainerReplaced { .. } | Self::PodEnded { .. })
    }

    /// What the reaping script must find of the pool's heartbeat.
    #[must_use]
    pub fn expect(&self) -> Expect {
        match self {
            Self::ContainerEnded { .. } | Self::ContainerReplaced { .. } | Self::PodEnded { .. } => Expect::Anything,
            Self::NoBeatSinceEnd { quiet, .. }
            | Self::Silent { quiet, .. }
            | Self::SharedHostSilent { quiet, .. }
            | Self::Superseded { quiet, .. }
            | Self::OutsiderSilent { quiet, .. } => quiet.expect,
            Self::UnknownPool { listed, .. } => Expect::Absent { listed: *listed },
            Self::ReapedBefore { expect } => *expect,
        }
    }

    /// The silence, where silence alone decided. Only such proofs are held back when many fall silent together.
    #[must_use]
    pub fn silence(&self) -> Option<&Quiet> {
        match self {
            Self::Silent { quiet, .. }
            | Self::SharedHostSilent { quiet, .. }
            | Self::Superseded { quiet, .. }
            | Self::OutsiderSilent { quiet, .. } => Some(quiet),
            _ => None,
        }
    }

    /// The container that the pool ran in, or may have.
    #[must_use]
    pub fn place(&self) -> Option<&Place> {
        match self {
            Self::ContainerEnded { place, .. }
            | Self::ContainerReplaced { place }
            | Self::PodEnded { place, .. }
            | Self::NoBeatSinceEnd { place, .. }
            | Self::SharedHostSilent { place, .. }
            | Self::Superseded { place, .. } => Some(place),
            Self::Silent { place, .. } => place.as_ref(),
            Self::OutsiderSilent { .. } | Self::UnknownPool { .. } | Self::ReapedBefore { .. } => None,
        }
    }

    /// One sentence for an Event.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::ContainerEnded { place, end } => {
                let mut text = format!("container {} of pod {} ended: {}", place.container, place.pod, end.reason);
                if let Some(code) = end.exit_code {
                    let _ = write!(text, ", exit code {code}");
                }
                text
            }
            Self::ContainerReplaced { place } => {
                format!("container {} of pod {} was restarted", place.container, place.pod)
            }
            Self::PodEnded { place, reason } => format!("pod {} was ended by its kubelet: {reason}", place.pod),
            Self::NoBeatSinceEnd { place, quiet } => format!(
                "container {} of pod {} ended, and no heartbeat came for {} s since",
                place.container,
                place.pod,
                quiet.silent_for.as_secs()
            ),
            Self::Silent { why, host, quiet, .. } => {
                format!("{}, and host {host} was silent for {} s", because(*why), quiet.silent_for.as_secs())
            }
            Self::SharedHostSilent { host, place, quiet } => format!(
                "pod {}, one of several with host name {host}, ended, and this worker was silent for {} s",
                place.pod,
                quiet.silent_for.as_secs()
            ),
            Self::Superseded { by, place, quiet } => format!(
                "a newer process ({by}) runs in container {} of pod {}, and this one was silent for {} s",
                place.container,
                place.pod,
                quiet.silent_for.as_secs()
            ),
            Self::OutsiderSilent { host, quiet } => {
                format!("host {host}, which is no pod of this queue, was silent for {} s", quiet.silent_for.as_secs())
            }
            Self::UnknownPool { known_for, .. } => {
                format!("it holds locks or jobs, but sent no heartbeat in {} s", known_for.as_secs())
            }
            Self::ReapedBefore { .. } => "it was reaped before, and left something behind".into(),
        }
    }
}

fn because(why: WhyUnknown) -> &'static str {
    match why {
        WhyUnknown::PodGone => "its pod is gone",
        WhyUnknown::PodOver => "its pod was given up, but not by its kubelet",
        WhyUnknown::NotReported => "its container is reported no longer",
        WhyUnknown::NoPod => "it has no pod",
    }
}

/// What would decide the fate of a pool.
#[derive(Debug, Clone, PartialEq)]
pub enum Decider {
    /// The list of pods is not complete yet.
    PodsNotKnown,
    /// Silence, since nobody can tell whether its process runs.
    Silence {
        /// Why nobody can tell.
        why: WhyUnknown,
        /// The silence so far.
        quiet: Quiet,
    },
    /// A beat, or none, since all that could be its container ended.
    NoBeatSinceEnd {
        /// One of the containers.
        place: Place,
        /// The silence so far.
        quiet: Quiet,
    },
    /// Silence, since one of several with its host name ended.
    SharedHost {
        /// The host name.
        host: HostKey,
        /// The silence so far.
        quiet: Quiet,
    },
    /// Another end on the shared host name: more pools are silent than processes ended.
    MoreSilentThanEnded {
        /// The host name.
        host: HostKey,
    },
    /// Silence, since a newer process runs in its container.
    Superseded {
        /// The silence so far.
        quiet: Quiet,
    },
    /// Its pod: it runs, as far as its kubelet says, but the pool is silent. Frozen, or cut off from Redis.
    SilentThoughRunning {
        /// The container.
        place: Place,
        /// The silence so far.
        silent_for: Duration,
    },
    /// Silence of a host that is nobody's pod.
    Outsider {
        /// The silence so far.
        quiet: Quiet,
    },
    /// Whether so many that fell silent together are still silent after one more timeout.
    ManyAtOnce {
        /// The silence so far.
        quiet: Quiet,
    },
    /// Whether it beats at all.
    UnknownPool {
        /// How long it has been known.
        known_for: Duration,
        /// How long it must have been.
        needed: Duration,
    },
    /// Whether it beats again, after it was reaped.
    ReapedBefore {
        /// The silence so far.
        quiet: Quiet,
    },
}

impl Decider {
    /// How long until it is decided if nothing happens; `None` where only an event decides.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        match self {
            Self::Silence { quiet, .. }
            | Self::NoBeatSinceEnd { quiet, .. }
            | Self::SharedHost { quiet, .. }
            | Self::Superseded { quiet }
            | Self::Outsider { quiet }
            | Self::ManyAtOnce { quiet }
            | Self::ReapedBefore { quiet } => Some(quiet.remaining()),
            Self::UnknownPool { known_for, needed } => Some(needed.saturating_sub(*known_for)),
            Self::PodsNotKnown | Self::MoreSilentThanEnded { .. } | Self::SilentThoughRunning { .. } => None,
        }
    }

    /// Whether frequent reads are of use: silence must be counted, and soon decides.
    #[must_use]
    pub fn wants_reads(&self) -> bool {
        !matches!(self, Self::SilentThoughRunning { .. } | Self::MoreSilentThanEnded { .. } | Self::Outsider { .. })
    }

    /// Its name in status: constant, in the case of a condition's reason.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::PodsNotKnown => "PodsNotKnown",
            Self::Silence { .. } => "Silence",
            Self::NoBeatSinceEnd { .. } => "NoBeatSinceEnd",
            Self::SharedHost { .. } => "SharedHost",
            Self::MoreSilentThanEnded { .. } => "MoreSilentThanEnded",
            Self::Superseded { .. } => "Superseded",
            Self::SilentThoughRunning { .. } => "SilentThoughRunning",
            Self::Outsider { .. } => "Outsider",
            Self::ManyAtOnce { .. } => "ManyAtOnce",
            Self::UnknownPool { .. } => "UnknownPool",
            Self::ReapedBefore { .. } => "ReapedBefore",
        }
    }
}
