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
    pub fn is_near(&self, now: Instant) -> bool {
        self.lately(now) + 1 >= CONTENDED
    }

    /// That somebody keeps writing the replicas, if so.
    #[must_use]
    pub fn problem(&self, now: Instant) -> Option<Problem> {
        let who = self.rival.as_ref().map_or("something else".to_owned(), |name| format!("{name:?}"));
        (self.lately(now) >= CONTENDED).then(|| Problem {
            reason: reason::REPLICAS_CONTENDED.into(),
            message: format!(
                "{who} keeps writing the target's replicas; take spec.replicas out of what it manages, or remove spec.scaling here; poolkeeper writes them ever more rarely meanwhile"
            ),
            stalled: true,
        })
    }

    fn lately(&self, now: Instant) -> usize {
        self.changes.iter().filter(|at| now.saturating_duration_since(**at) < WITHIN).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_change_within_ten_minutes_is_a_contention() {
        let long_ago = Instant::now();
        let now = long_ago + WITHIN;
        let mut contention = Contention::default();
        for at in [long_ago, now] {
            contention.note(at);
        }
        assert!(!contention.is_near(now) && contention.problem(now).is_none());
        contention.note(now);
        assert!(contention.is_near(now) && contention.problem(now).is_none());
        contention.name(Some("argocd-controller".into()));
        contention.name(None);
        contention.note(now);
        assert!(contention.problem(now + WITHIN).is_none(), "they have stopped");
        assert!(contention.problem(now).unwrap().message.contains("argocd-controller"));
    }
}
