//! Others' hands on a target's replicas: one `kubectl scale` is put right, one who keeps writing is named. Pure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::status::Problem;
use crate::api::condition::reason;

/// So many changes by others within [`WITHIN`] are no single `kubectl scale`.
const CONTENDED: usize = 3;
/// How long a change by others counts.
const WITHIN: Duration = Duration::from_secs(600);

/// Changes of the replicas that were not ours.
#[derive(Debug, Clone, Default)]
pub struct Contention {
    changes: VecDeque<Instant>,
    rival: Option<String>,
}

impl Contention {
    /// Somebody else changed the replicas.
    pub fn note(&mut self, now: Instant) {
        self.changes.push_back(now);
        if self.changes.len() > CONTENDED {
            self.changes.pop_front();
        }
    }

    /// Who it was, where that was found out.
    pub fn name(&mut self, rival: Option<String>) {
        self.rival = rival.or(self.rival.take());
    }

    /// Whether the next change makes it a contention, so that it is worth to find out whose.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.lately() + 1 >= CONTENDED
    }

    /// That somebody keeps writing the replicas, if so.
    #[must_use]
    pub fn problem(&self) -> Option<Problem> {
        let who = self.rival.as_ref().map_or("something else".to_owned(), |name| format!("{name:?}"));
        (self.lately() >= CONTENDED).then(|| Problem {
            reason: reason::REPLICAS_CONTENDED.into(),
            message: format!(
                "{who} keeps writing the target's replicas; take spec.replicas out of what it manages, or remove spec.scaling here; poolkeeper writes them ever more rarely meanwhile"
            ),
            stalled: true,
        })
    }

    fn lately(&self) -> usize {
        self.changes.iter().filter(|at| at.elapsed() < WITHIN).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_change_within_ten_minutes_is_a_contention() {
        let Some(long_ago) = Instant::now().checked_sub(WITHIN) else { return };
        let mut contention = Contention::default();
        for at in [long_ago, Instant::now()] {
            contention.note(at);
        }
        assert!(!contention.is_near() && contention.problem().is_none());
        contention.note(Instant::now());
        assert!(contention.is_near() && contention.problem().is_none());
        contention.name(Some("argocd-controller".into()));
        contention.name(None);
        contention.note(Instant::now());
        assert!(contention.problem().unwrap().message.contains("argocd-controller"));
    }
}
