//! Whether a pool is dead, and by which proof: pure, from what is known of it.
//!
//! [`decide`] is for pools that beat at least once, [`decide_unknown`] for ids known only from lock counts and lists.
//! Each rule of the documentation is one function here:
//!
//! | rule | function |
//! | --- | --- |
//! | a bound container ended, its pod started another, its kubelet ended the pod | [`certain`] |
//! | unbound, and all that could be its container ended | [`no_beat_since_end`] |
//! | the process's fate is unknown | [`silence_decides`] |
//! | reported running, but silent; and replaced by a newer process | [`while_reported_running`] |
//! | a host name that several share | [`on_a_shared_host`] |
//! | a host that is nobody's pod | [`outsider`] |
//! | reaped within the last day | [`reaped_before`] |
//!
//! What depends on several pools at once is decided after this, in [`super::judge`]: how many of a shared host name
//! may be dead, and whether so many fell silent together that it is more likely our fault.

pub mod proof;

use std::time::{Duration, Instant};

pub use proof::{Decider, Expect, Proof, Quiet};

use crate::protocol::{EpochSeconds, PoolId};
use crate::reaper::binding::Contender;
use crate::reaper::host::HostKey;
use crate::reaper::pods::{Fate, WhyUnknown};
use crate::reaper::silence::Silence;

/// An id without a heartbeat is acted on after this time, whatever else started.
pub const UNKNOWN_AT_MOST: Duration = Duration::from_secs(60);

/// The times by which silence is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// `reaping.heartbeatTimeoutSeconds`.
    pub heartbeat_timeout: Duration,
    /// `reaping.outsiderTimeoutSeconds`; `None`: never.
    pub outsider_timeout: Option<Duration>,
    /// How often a worker beats; gocraft/work: 5 s.
    pub heartbeat_interval: Duration,
}

impl Settings {
    /// A heartbeat interval and a half: who beats at all has beaten within it.
    #[must_use]
    pub fn one_missed_beat(&self) -> Duration {
        self.heartbeat_interval * 3 / 2
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat_timeout: Duration::from_secs(12),
            outsider_timeout: Some(Duration::from_secs(60)),
            heartbeat_interval: Duration::from_secs(5),
        }
    }
}

/// Whose a host name is, where no container of ours can be the pool's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A pod of the queue had it within the last day.
    OfQueue,
    /// Another queue, here or in another cluster, claims it: that one judges.
    Foreign,
    /// In no claim of the last day.
    Outsider,
}

/// All that is known of one pool that beat at least once.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub struct Facts<'a> {
    /// Its `started_at`, of its node's clock.
    pub started_at: EpochSeconds,
    /// Its host name.
    pub host: &'a HostKey,
    /// Its heartbeat over all reads.
    pub silence: &'a Silence,
    /// Whether its heartbeat is in Redis now.
    pub present: bool,
    /// Whether the set of worker pools names it now.
    pub listed: bool,
    /// The containers that may be its own: of its binding, or by its host name. Those that can't be, because they
    /// started later, ended earlier, or ended before its last beat, are left out.
    pub contenders: &'a [Contender],
    /// Whether a binding names the only contender.
    pub bound: bool,
    /// Whether others that are no contenders may have its host name.
    pub shared: bool,
    /// Whose its host name is, where there are no contenders.
    pub origin: Origin,
    /// A newer, beating pool of another process in the same container.
    pub superseded_by: Option<&'a PoolId>,
    /// Whether all pods are known.
    pub pods_known: bool,
    /// Set when it was reaped within the last day: whether it was seen to beat since.
    pub reaped_beats_again: Option<bool>,
}

impl Facts<'_> {
    fn quiet(&self, silent_for: Duration, needed: Duration) -> Quiet {
        let expect = match self.silence.heartbeat() {
            Some(beat) if self.present => Expect::Unmoved(beat),
            _ => Expect::Absent { listed: self.listed },
        };
        Quiet { silent_for, needed, since: self.silence.since(), expect }
    }
}

/// Living, dead or undecided.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It beats, or its process is known to run, or it is not ours to judge.
    Living,
    /// Dead, by this proof.
    Dead(Proof),
    /// Not known yet.
    Undecided(Decider),
}

/// The verdict on a pool that beat at least once.
#[must_use]
pub fn decide(facts: &Facts<'_>, settings: &Settings) -> Verdict {
    let verdict = by_container(facts, settings);
    match facts.reaped_beats_again {
        Some(false) if !matches!(verdict, Verdict::Dead(_)) => reaped_before(facts, settings),
        _ => verdict,
    }
}

fn by_container(facts: &Facts<'_>, settings: &Settings) -> Verdict {
    if let ([bound], true) = (facts.contenders, facts.bound) {
        return match &bound.fate {
            Fate::Running => while_reported_running(bound, facts, settings),
            Fate::Unknown(why) => when_pods_are_known(facts, || silence_decides(*why, Some(bound), facts, settings)),
            Fate::Ended { .. } | Fate::Replaced { .. } | Fate::PodEnded { .. } => certain(bound, facts, settings),
        };
    }
    let Some(first) = facts.contenders.first() else {
        return match facts.origin {
            Origin::Foreign => Verdict::Living,
            Origin::OfQueue => when_pods_are_known(facts, || silence_decides(WhyUnknown::NoPod, None, facts, settings)),
            Origin::Outsider => when_pods_are_known(facts, || outsider(facts, settings)),
        };
    };
    let running = facts.contenders.iter().find(|one| one.runs());
    let not_running = facts.contenders.iter().find(|one| !one.runs());
    match (running, not_running) {
        (Some(running), None) => while_reported_running(running, facts, settings),
        (Some(_), Some(over)) => on_a_shared_host(over, facts, settings),
        (None, _) if facts.shared => on_a_shared_host(first, facts, settings),
        (None, _) => when_pods_are_known(facts, || after_all_ended(first, facts, settings)),
    }
}

/// While not all pods are known, one that is missing says nothing.
fn when_pods_are_known(facts: &Facts<'_>, rule: impl FnOnce() -> Verdict) -> Verdict {
    if facts.pods_known { rule() } else { Verdict::Undecided(Decider::PodsNotKnown) }
}

/// "Certain: the bound container is terminated, or gone from a pod that started another one, and the pool's
/// `started_at` is before the `finishedAt` reported for it. Reap at once, however fresh the heartbeat." And "Evicted
/// pods stay for days: don't wait for a deletion."
fn certain(bound: &Contender, facts: &Facts<'_>, settings: &Settings) -> Verdict {
    let place = bound.place.clone();
    match &bound.fate {
        _ if !bound.proven(facts.started_at) => {
            // On a tie: treated as unbound.
            when_pods_are_known(facts, || after_all_ended(bound, facts, settings))
        }
        Fate::Ended { end, .. } => Verdict::Dead(Proof::ContainerEnded { place, end: end.clone() }),
        Fate::PodEnded { reason, .. } => Verdict::Dead(Proof::PodEnded { place, reason: reason.clone() }),
        Fate::Replaced { .. } | Fate::Running | Fate::Unknown(_) => Verdict::Dead(Proof::ContainerReplaced { place }),
    }
}

fn after_all_ended(first: &Contender, facts: &Facts<'_>, settings: &Settings) -> Verdict {
    let unknown = facts.contenders.iter().find_map(|one| match &one.fate {
        Fate::Unknown(why) => Some((*why, one)),
        _ => None,
    });
    match unknown {
        Some((why, one)) => silence_decides(why, Some(one), facts, settings),
        None => no_beat_since_end(first, facts, settings),
    }
}

/// "Unbound pools: their only candidate container was seen to have ended or to have been restarted, and no beat came
/// for one heartbeat interval and a half since we saw that. A beat refutes it, whatever the clocks say." (Refuted
/// contenders are no longer among the facts.)
fn no_beat_since_end(first: &Contender, facts: &Facts<'_>, settings: &Settings) -> Verdict {
    let last_seen: Option<Instant> = facts.contenders.iter().filter_map(Contender::end_seen).max();
    let silent_for = last_seen.map_or(Duration::ZERO, |seen| facts.silence.silent_after(seen));
    let needed = settings.one_missed_beat();
    let quiet = facts.quiet(silent_for, needed);
    if silent_for >= needed {
        Verdict::Dead(Proof::NoBeatSinceEnd { place: first.place.clone(), quiet })
    } else {
        Verdict::Undecided(Decider::NoBeatSinceEnd { place: first.place.clone(), quiet })
    }
}

/// "Unknown (pod object gone while its container was last seen running; force delete; lost node; unbound and no
/// pod): silence decides."
fn silence_decides(why: WhyUnknown, at: Option<&Contender>, facts: &Facts<'_>, settings: &Settings) -> Verdict {
    let quiet = facts.quiet(facts.silence.silent_for(), settings.heartbeat_timeout);
    let place = at.map(|one| one.place.clone());
    if quiet.is_enough() {
        Verdict::Dead(Proof::Silent { why, host: facts.host.clone(), place, quiet })
    } else {
        Verdict::Undecided(Decider::Silence { why, quiet })
    }
}

/// "A pod that runs but is silent is not dead while its kubelet says running; a condition says so." Only: "a newer
/// beating pool with another `pid` in the same container makes an older silent one subject to silence".
fn while_reported_running(running: &Contender, facts: &Facts<'_>, settings: &Settings) -> Verdict {
    let quiet = facts.quiet(facts.silence.silent_for(), settings.heartbeat_timeout);
    let place = running.place.clone();
    match facts.superseded_by {
        Some(by) if quiet.is_enough() => Verdict::Dead(Proof::Superseded { by: by.clone(), place, quiet }),
        Some(_) => Verdict::Undecided(Decider::Superseded { quiet }),
        None if quiet.is_enough() => {
            Verdict::Undecided(Decider::SilentThoughRunning { place, silent_for: quiet.silent_for })
        }
        None => Verdict::Living,
    }
}

/// "Several pods or worker containers may share one host name. Then no binding is made; when one of the candidates has
/// ended after a pool's last beat, silence reaps" (and at most as many processes' pools as have ended, see
/// [`super::judge`]).
fn on_a_shared_host(over: &Contender, facts: &Facts<'_>, settings: &Settings) -> Verdict {
    let quiet = facts.quiet(facts.silence.silent_for(), settings.heartbeat_timeout);
    if quiet.is_enough() {
        Verdict::Dead(Proof::SharedHostSilent { host: facts.host.clone(), place: over.place.clone(), quiet })
    } else {
        Verdict::Undecided(Decider::SharedHost { host: facts.host.clone(), quiet })
    }
}

/// "`outsiderTimeoutSeconds`: the same for pools of hosts that are no pods of ours; 0: never reap them."
fn outsider(facts: &Facts<'_>, settings: &Settings) -> Verdict {
    let Some(needed) = settings.outsider_timeout else { return Verdict::Living };
    let quiet = facts.quiet(facts.silence.silent_for(), needed);
    if quiet.is_enough() {
        Verdict::Dead(Proof::OutsiderSilent { host: facts.host.clone(), quiet })
    } else if quiet.silent_for >= settings.one_missed_beat() {
        Verdict::Undecided(Decider::Outsider { quiet })
    } else {
        Verdict::Living
    }
}

/// "A reaped id is remembered for a day: what it writes late is settled at once". A heartbeat that came back may be a
/// thawed process, which beats again within one interval, so that much time is left to it.
fn reaped_before(facts: &Facts<'_>, settings: &Settings) -> Verdict {
    let quiet = facts.quiet(facts.silence.silent_for(), settings.one_missed_beat());
    if quiet.is_enough() || !facts.present {
        Verdict::Dead(Proof::ReapedBefore { expect: quiet.expect })
    } else {
        Verdict::Undecided(Decider::ReapedBefore { quiet })
    }
}

/// All that is known of an id without a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownFacts {
    /// How long every look has shown it so.
    pub known_for: Duration,
    /// Whether a worker container of the queue started since the first of these looks.
    pub pod_started_since: bool,
    /// Whether it was reaped within the last day.
    pub reaped: bool,
    /// Jobs in its in-progress lists.
    pub in_progress: u64,
    /// Whether the set of worker pools names it.
    pub listed: bool,
}

/// "A pool id known only from `lock_info` or from an in-progress list: act when two passes `heartbeatTimeoutSeconds`
/// apart see it and no pod of the queue started in between; after 60 s regardless."
///
/// What a reaped pool writes late is settled at once; but while it holds jobs, a second look must show that it does
/// not beat again.
#[must_use]
pub fn decide_unknown(facts: &UnknownFacts, settings: &Settings) -> Verdict {
    if facts.reaped {
        let second_look = facts.known_for > Duration::ZERO;
        if facts.in_progress == 0 || second_look {
            return Verdict::Dead(Proof::ReapedBefore { expect: Expect::Absent { listed: facts.listed } });
        }
        return Verdict::Undecided(Decider::UnknownPool { known_for: facts.known_for, needed: Duration::from_secs(1) });
    }
    let longest = UNKNOWN_AT_MOST.max(settings.heartbeat_timeout);
    let needed = if facts.pod_started_since { longest } else { settings.heartbeat_timeout };
    if facts.known_for >= needed {
        Verdict::Dead(Proof::UnknownPool { known_for: facts.known_for, listed: facts.listed })
    } else {
        Verdict::Undecided(Decider::UnknownPool { known_for: facts.known_for, needed })
    }
}

#[cfg(test)]
mod tests;
