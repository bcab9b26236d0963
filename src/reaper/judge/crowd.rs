//! What can be decided only over several pools at once. Both rules take proofs back, and never give one.

use std::collections::BTreeMap;
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

/// A pool, and the ended containers that its death would explain.
#[derive(Debug, Clone)]
pub(super) struct Claimant {
    /// The pool.
    pub pool: PoolId,
    /// Its process.
    pub process: ProcessKey,
    /// When its silence began.
    pub since: Instant,
    /// Ids of the containers that may be its own and don't run any more.
    pub ended: Vec<Arc<str>>,
    /// Whether it is dead already, and not only silent so far.
    pub dead: bool,
}

/// "At most as many processes' pools as have ended": each ended container is the end of one process.
///
/// `sure` are the pools that can only be in containers that don't run any more: each takes one of them beforehand, dead
/// or not yet. `claimants` may be in a running one too: those for whom no ended container is left are taken back; who
/// was silent longest goes first. `spent` says which process each ended container was already taken for, and is carried
/// on.
pub(super) fn limit_to_ended(
    verdicts: &mut BTreeMap<PoolId, Verdict>,
    mut sure: Vec<Claimant>,
    mut claimants: Vec<Claimant>,
    spent: &mut BTreeMap<Arc<str>, ProcessKey>,
) {
    sure.sort_by(|a, b| (!a.dead, a.ended.len(), &a.pool).cmp(&(!b.dead, b.ended.len(), &b.pool)));
    let mut reserved = spent.clone();
    for one in sure {
        if let Some(id) = take(&one, &mut reserved)
            && one.dead
        {
            spent.insert(id, one.process);
        }
    }
    claimants.sort_by(|a, b| (a.since, &a.pool).cmp(&(b.since, &b.pool)));
    for claimant in claimants {
        if let Some(id) = take(&claimant, &mut reserved) {
            spent.insert(id, claimant.process);
        } else {
            let more = Decider::MoreSilentThanEnded { host: claimant.process.host };
            verdicts.insert(claimant.pool, Verdict::Undecided(more));
        }
    }
}

/// The container that a process's death explains: one that was taken for it before, or a free one.
fn take(one: &Claimant, taken: &mut BTreeMap<Arc<str>, ProcessKey>) -> Option<Arc<str>> {
    let own = one.ended.iter().find(|id| taken.get(*id) == Some(&one.process));
    let id = own.or_else(|| one.ended.iter().find(|id| !taken.contains_key(*id)))?;
    taken.insert(id.clone(), one.process.clone());
    Some(id.clone())
}

#[cfg(test)]
mod tests;
