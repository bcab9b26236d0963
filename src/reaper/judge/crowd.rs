//! What can be decided only over several pools at once. Both rules take proofs back, and never give one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::protocol::{EpochSeconds, PoolId};
use crate::reaper::host::HostKey;
use crate::reaper::verdict::{Decider, Verdict};

/// Fewer than these falling silent together are no crowd.
const CROWD: usize = 4;

/// One pool's silence, as far as it was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fell {
    /// When the silence began.
    pub since: Instant,
    /// How long it lasts.
    pub silent_for: Duration,
}

/// "Many at once: when more than a third of the pools (and at least four) fall silent together, it is more likely us or
/// Redis: hold for another `heartbeatTimeoutSeconds`, say so, then go on. Only silence is held, never a certain proof."
///
/// `pools` are all that beat at least once and whose end is not certain. Together means within one timeout of each
/// other. The answer is whether any proof is held.
pub(super) fn hold_many_at_once(verdicts: &mut BTreeMap<PoolId, Verdict>, pools: &[Fell], timeout: Duration) -> bool {
    let mut silent: Vec<Instant> =
        pools.iter().filter(|pool| pool.silent_for >= timeout).map(|pool| pool.since).collect();
    if silent.len() < CROWD || silent.len() * 3 <= pools.len() {
        return false;
    }
    silent.sort_unstable();
    let together = |since: Instant| {
        let from = since.checked_sub(timeout).unwrap_or(since);
        let (first, last) =
            (silent.partition_point(|other| *other < from), silent.partition_point(|other| *other <= since + timeout));
        let count = last - first;
        count >= CROWD && count * 3 > pools.len()
    };
    let mut held = false;
    for verdict in verdicts.values_mut() {
        let Verdict::Dead(proof) = verdict else { continue };
        let Some(mut quiet) = proof.silence().copied() else { continue };
        quiet.needed += timeout;
        if !quiet.is_enough() && together(quiet.since) {
            *verdict = Verdict::Undecided(Decider::ManyAtOnce { quiet });
            held = true;
        }
    }
    held
}

/// One process, told from others on the same host name by its id and the second in which its pools started.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProcessKey {
    /// Its host name.
    pub host: HostKey,
    /// Its process id.
    pub pid: Arc<str>,
    /// When its pools started.
    pub started_at: EpochSeconds,
}

/// A pool, and the containers that may be its own.
#[derive(Debug, Clone)]
pub(super) struct Claimant {
    /// The pool.
    pub pool: PoolId,
    /// Its process.
    pub process: ProcessKey,
    /// When its silence began.
    pub since: Instant,
    /// Ids of the containers that may be its own, running ones among them.
    pub candidates: Vec<Arc<str>>,
    /// Whether one of them is reported running.
    pub may_run: bool,
    /// Whether it is dead already, and not only silent so far.
    pub dead: bool,
}

/// Processes that were found dead, and the containers that each may have been in. Carried on from look to look.
pub(super) type Deaths = BTreeMap<ProcessKey, Vec<Arc<str>>>;

/// "At most as many processes' pools as have ended": there must be an ended container for each dead process.
///
/// `over` are the containers that don't run any more. `sure` are the pools that can only be in such ones: each takes
/// one of them beforehand, dead or not yet. `claimants` may be in another one too: those for whom no ended container is
/// left are taken back. First come those that none of the running ones is known to be of, then who was silent longest.
pub(super) fn limit_to_ended(
    verdicts: &mut BTreeMap<PoolId, Verdict>,
    over: &BTreeSet<Arc<str>>,
    mut sure: Vec<Claimant>,
    mut claimants: Vec<Claimant>,
    deaths: &mut Deaths,
) {
    let mut ends = Ends { over, taken: BTreeMap::new(), wanted: BTreeMap::new() };
    if !claimants.is_empty() {
        for (process, candidates) in &*deaths {
            ends.take(process, candidates);
        }
    }
    sure.sort_by(|a, b| (!a.dead, a.candidates.len(), &a.pool).cmp(&(!b.dead, b.candidates.len(), &b.pool)));
    for one in sure {
        if !claimants.is_empty() {
            ends.take(&one.process, &one.candidates);
        }
        if one.dead {
            deaths.insert(one.process, one.candidates);
        }
    }
    claimants.sort_by(|a, b| (a.may_run, a.since, &a.pool).cmp(&(b.may_run, b.since, &b.pool)));
    for claimant in claimants {
        if ends.take(&claimant.process, &claimant.candidates) {
            deaths.insert(claimant.process, claimant.candidates);
        } else {
            let more = Decider::MoreSilentThanEnded { host: claimant.process.host };
            verdicts.insert(claimant.pool, Verdict::Undecided(more));
        }
    }
}

/// Which ended container explains the death of which process: a matching, in which a process makes room for another
/// where it can be explained by a different container.
struct Ends<'a> {
    over: &'a BTreeSet<Arc<str>>,
    taken: BTreeMap<Arc<str>, ProcessKey>,
    wanted: BTreeMap<ProcessKey, Vec<Arc<str>>>,
}

impl Ends<'_> {
    /// Whether an ended container is left for this process.
    fn take(&mut self, process: &ProcessKey, candidates: &[Arc<str>]) -> bool {
        if self.taken.values().any(|other| other == process) {
            return true;
        }
        let ended = candidates.iter().filter(|id| self.over.contains(*id)).cloned().collect();
        self.wanted.insert(process.clone(), ended);
        self.make_room(process, &mut BTreeSet::new())
    }

    fn make_room(&mut self, process: &ProcessKey, tried: &mut BTreeSet<Arc<str>>) -> bool {
        for id in self.wanted.get(process).cloned().unwrap_or_default() {
            if !tried.insert(id.clone()) {
                continue;
            }
            let holder = self.taken.get(&id).cloned();
            if holder.is_none_or(|holder| self.make_room(&holder, tried)) {
                self.taken.insert(id, process.clone());
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
