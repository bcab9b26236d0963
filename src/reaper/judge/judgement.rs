//! What one look, or one reaction to pods, came to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::case::Case;
use crate::protocol::PoolId;
use crate::reaper::binding::Binding;
use crate::reaper::host::HostKey;
use crate::reaper::verdict::{Decider, Proof, Verdict};

/// The fate of every pool of one queue, and what follows from it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Judgement {
    /// Dead pools, and why. Those of a process that was reaped before show up here until nothing of them is left.
    pub dead: BTreeMap<PoolId, Proof>,
    /// Pools whose fate is open: they count as living.
    pub undecided: BTreeMap<PoolId, Decider>,
    /// Living pools, those that others judge among them.
    pub living: BTreeSet<PoolId>,
    /// Bindings to be kept in Redis; named again until Redis has them.
    pub new_bindings: BTreeMap<PoolId, Binding>,
    /// Bindings of ours in Redis whose pool is in no key any more.
    pub stale_bindings: BTreeSet<PoolId>,
    /// Pools that were reaped and beat again: a living worker was taken for dead. Named once.
    pub resurrected: BTreeSet<PoolId>,
    /// Host names that several processes have, so that their pools can't be bound.
    pub shared_hosts: BTreeSet<HostKey>,
    /// Pods that each pool runs in, or may run in.
    pub pods_of: BTreeMap<PoolId, Box<[Arc<str>]>>,
    /// Whether proofs by silence are held, since many pools fell silent together.
    pub held_many_at_once: bool,
    /// How long to wait before the next look.
    pub next_look: Duration,
}

impl Judgement {
    pub(super) fn of(verdicts: BTreeMap<PoolId, Verdict>, held_many_at_once: bool) -> Self {
        let mut judgement = Self { held_many_at_once, ..Self::default() };
        for (pool, verdict) in verdicts {
            match verdict {
                Verdict::Living => {
                    judgement.living.insert(pool);
                }
                Verdict::Dead(proof) => {
                    judgement.dead.insert(pool, proof);
                }
                Verdict::Undecided(decider) => {
                    judgement.undecided.insert(pool, decider);
                }
            }
        }
        judgement
    }

    pub(super) fn attribute(&mut self, cases: &BTreeMap<PoolId, Case>) {
        for (pool, case) in cases.iter().filter(|(pool, _)| !self.dead.contains_key(*pool)) {
            let pods: BTreeSet<Arc<str>> = case.contenders.iter().map(|one| one.place.pod.clone()).collect();
            if !pods.is_empty() {
                self.pods_of.insert(pool.clone(), pods.into_iter().collect());
            }
        }
    }

    /// Pools whose kubelet says that they run, but which are silent: frozen, or cut off from Redis.
    pub fn silent_though_running(&self) -> impl Iterator<Item = (&PoolId, &Decider)> {
        self.undecided.iter().filter(|(_, decider)| matches!(decider, Decider::SilentThoughRunning { .. }))
    }
}
