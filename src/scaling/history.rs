//! What one replica of the operator remembers of a target from decision to decision. It starts anew with the process,
//! and so does the watching: nothing is lowered before it was watched for a whole window.
//!
//! Bounded: recommendations that lie close together are merged, always so that the higher one counts for longer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time over which `maxScaleUpPerMinute` counts.
pub(super) const MINUTE: Duration = Duration::from_secs(60);
/// Looks that are further apart than this leave out what was asked for in between: the window begins anew. Passes are
/// at most 30 s apart while Redis answers and the resource is not paused.
const LONGEST_GAP: Duration = Duration::from_secs(120);
/// Recommendations that are kept apart.
const RECOMMENDATIONS_AT_MOST: usize = 64;
/// Raises within this time are kept as one.
const RAISES_APART: Duration = Duration::from_secs(1);

/// What was recommended and done lately, for one target. Another target needs another history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    last_look: Instant,
    /// The target's replicas at the last look.
    current: i32,
    /// The oldest first, each higher than all later ones: lower ones that are older say nothing. The last one stands
    /// until the next.
    recommended: VecDeque<Recommended>,
    /// The oldest first.
    raises: VecDeque<Raise>,
}

/// It was recommended to have that many replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Recommended {
    replicas: i32,
    /// When that was last so.
    stood: Instant,
    /// The same, or later where others were merged into it.
    at: Instant,
}

impl Recommended {
    fn at(now: Instant, replicas: i32) -> Self {
        Self { replicas, stood: now, at: now }
    }
}

/// Replicas were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Raise {
    added: u32,
    from_zero: bool,
    first: Instant,
    last: Instant,
}

impl History {
    /// Nothing is known before `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { last_look: now, current: 0, recommended: VecDeque::new(), raises: VecDeque::new() }
    }

    /// A decision begins, on a target of `current` replicas. Of times that nobody watched, as before a start, nothing
    /// is known but that they ended with that many.
    pub(super) fn look(&mut self, now: Instant, current: i32) {
        if now.saturating_duration_since(self.last_look) > LONGEST_GAP {
            self.recommended.clear();
        }
        if !self.recommended.is_empty() {
            // What another replica of the operator wrote, or a write of ours whose answer never came, counts as well.
            self.scaled_up(now, u32::try_from(current.saturating_sub(self.current)).unwrap_or(0));
        }
        if self.recommended.is_empty() {
            self.recommended.push_back(Recommended::at(now, current));
        }
        self.last_look = now;
        self.current = current;
        while self.raises.front().is_some_and(|raise| age(raise.last, now) >= MINUTE) {
            self.raises.pop_front();
        }
    }

    /// So many replicas are recommended from `now` on. The recommendation before this one stood until now.
    pub fn record_recommendation(&mut self, now: Instant, replicas: i32, window: Duration) {
        if let Some(before) = self.recommended.back_mut() {
            (before.stood, before.at) = (now, now);
        }
        while self.recommended.front().is_some_and(|one| age(one.at, now) >= window) {
            self.recommended.pop_front();
        }
        while self.recommended.back().is_some_and(|one| one.replicas <= replicas) {
            self.recommended.pop_back();
        }
        if self.recommended.len() == RECOMMENDATIONS_AT_MOST {
            self.merge_closest();
        }
        self.recommended.push_back(Recommended::at(now, replicas));
    }

    /// The highest recommendation within the window that ends at `now`, the one that stands included.
    #[must_use]
    pub fn highest_recommendation(&self, now: Instant, window: Duration) -> Option<i32> {
        let last = self.recommended.back()?;
        Some(self.recommended.iter().find(|one| age(one.at, now) < window).unwrap_or(last).replicas)
    }

    /// How long until the highest recommendation of the window is below `replicas`, if none is made but the one that
    /// stands. `None` while that one is not below.
    pub(super) fn falls_below(&self, replicas: i32, now: Instant, window: Duration) -> Option<Duration> {
        if self.recommended.back()?.replicas >= replicas {
            return None;
        }
        let last = self.recommended.iter().rfind(|one| one.replicas >= replicas)?;
        Some(window.saturating_sub(age(last.at, now)))
    }

    /// A write has raised the target's replicas by `added`, from what the last decision was made on.
    pub fn scaled_up(&mut self, now: Instant, added: u32) {
        if added == 0 {
            return;
        }
        let from_zero = self.current == 0;
        self.current = self.current.saturating_add_unsigned(added);
        match self.raises.back_mut().filter(|raise| age(raise.first, now) < RAISES_APART) {
            Some(raise) => {
                raise.added = raise.added.saturating_add(added);
                raise.from_zero |= from_zero;
                raise.last = now;
            }
            None => self.raises.push_back(Raise { added, from_zero, first: now, last: now }),
        }
    }

    /// How many replicas were added within the last 60 seconds.
    #[must_use]
    pub fn added_within_minute(&self, now: Instant) -> u32 {
        self.lately(now).fold(0, |sum, raise| sum.saturating_add(raise.added))
    }

    /// Whether replicas were raised from 0 within the last 60 seconds.
    pub(super) fn woken_within_minute(&self, now: Instant) -> bool {
        self.lately(now).any(|raise| raise.from_zero)
    }

    /// How long until raises of the last 60 seconds begin to be forgotten. `None` where there are none.
    pub(super) fn refills_in(&self, now: Instant) -> Option<Duration> {
        self.lately(now).next().map(|raise| MINUTE.saturating_sub(age(raise.last, now)))
    }

    /// How long ago replicas were last added, if within the last 60 seconds.
    pub(super) fn since_raise(&self, now: Instant) -> Option<Duration> {
        self.lately(now).last().map(|raise| age(raise.last, now))
    }

    fn lately(&self, now: Instant) -> impl Iterator<Item = &Raise> {
        self.raises.iter().filter(move |raise| age(raise.last, now) < MINUTE)
    }

    /// Makes room: of two neighbours the higher one counts for as long as both did. Those are chosen of which it then
    /// counts too long by the least.
    fn merge_closest(&mut self) {
        let gap = |index: usize| age(self.recommended[index].stood, self.recommended[index + 1].at);
        let closest = (0..self.recommended.len().saturating_sub(1)).min_by_key(|index| gap(*index));
        if let Some(index) = closest
            && let Some(later) = self.recommended.remove(index + 1)
        {
            self.recommended[index].at = later.at;
        }
    }
}

fn age(at: Instant, now: Instant) -> Duration {
    now.saturating_duration_since(at)
}

#[cfg(test)]
mod tests;
