//! How long a pool has said nothing.
//!
//! Carries out "Silence is the heartbeat unchanged for `heartbeatTimeoutSeconds` of this operator's monotonic clock,
//! counted only over reads that succeeded without a gap (none longer than 3 s) from one and the same primary". What
//! the heartbeat says is never compared with a clock, only with what it said before.

use std::time::{Duration, Instant};

use crate::protocol::{ConnectionId, EpochSeconds};

/// The longest time between two reads over which silence is still counted.
pub const LONGEST_GAP: Duration = Duration::from_secs(3);

/// One pool's heartbeat over all reads. Reads that failed are not told to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    heartbeat: Option<EpochSeconds>,
    connection: ConnectionId,
    first_read: Instant,
    last_read: Instant,
    since: Instant,
    last_move: Option<Move>,
}

/// A beat, as two reads show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Move {
    /// The last read before it.
    before: Instant,
    /// The read that showed it.
    seen: Instant,
}

impl Silence {
    /// The first read of a pool, begun at `now`. `heartbeat` is `None` for a pool without one.
    #[must_use]
    pub fn first(now: Instant, connection: ConnectionId, heartbeat: Option<EpochSeconds>) -> Self {
        Self { heartbeat, connection, first_read: now, last_read: now, since: now, last_move: None }
    }

    /// One more read, begun at `now`. A heartbeat that is gone is no beat; one that comes back changed is.
    pub fn read(&mut self, now: Instant, connection: ConnectionId, heartbeat: Option<EpochSeconds>) {
        let moved = heartbeat.is_some() && heartbeat != self.heartbeat;
        if moved {
            self.last_move = Some(Move { before: self.last_read, seen: now });
            self.heartbeat = heartbeat;
        }
        let gap = now.saturating_duration_since(self.last_read) > LONGEST_GAP;
        if moved || gap || connection != self.connection {
            self.since = now;
        }
        self.connection = connection;
        self.last_read = now;
    }

    /// The heartbeat as last read, also when it is gone since.
    #[must_use]
    pub fn heartbeat(&self) -> Option<EpochSeconds> {
        self.heartbeat
    }

    /// How long the pool has been silent, up to the last read.
    #[must_use]
    pub fn silent_for(&self) -> Duration {
        self.silent_after(self.since)
    }

    /// How long the pool has been silent after `seen`, up to the last read.
    #[must_use]
    pub fn silent_after(&self, seen: Instant) -> Duration {
        self.last_read.saturating_duration_since(self.since.max(seen))
    }

    /// When the counted silence began.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Whether the pool beat after `seen`: both reads between which it did are later.
    #[must_use]
    pub fn beat_after(&self, seen: Instant) -> bool {
        self.last_move.is_some_and(|beat| beat.before >= seen)
    }

    /// Whether the last read showed a beat.
    #[must_use]
    pub fn just_moved(&self) -> bool {
        self.last_move.is_some_and(|beat| beat.seen == self.last_read)
    }

    /// Whether a beat was ever seen.
    #[must_use]
    pub fn ever_moved(&self) -> bool {
        self.last_move.is_some()
    }

    /// When the pool was first read.
    #[must_use]
    pub fn first_read(&self) -> Instant {
        self.first_read
    }

    /// How long the pool has been known, up to the last read.
    #[must_use]
    pub fn known_for(&self) -> Duration {
        self.last_read.saturating_duration_since(self.first_read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Second of the read, connection, heartbeat.
    type Read = (u64, u64, i64);

    #[test]
    fn counts_only_over_reads_without_a_gap_on_one_connection() {
        let table: [(&str, &[Read], u64); 7] = [
            ("one read", &[(0, 1, 7)], 0),
            ("unchanged", &[(0, 1, 7), (3, 1, 7), (6, 1, 7)], 6),
            ("a beat", &[(0, 1, 7), (3, 1, 12), (5, 1, 12)], 2),
            ("a gap", &[(0, 1, 7), (4, 1, 7), (6, 1, 7)], 2),
            ("a beat over a gap", &[(0, 1, 7), (10, 1, 9), (12, 1, 9)], 2),
            ("another connection", &[(0, 1, 7), (3, 2, 7), (5, 2, 7)], 2),
            ("the worker's clock set back", &[(0, 1, 7), (2, 1, 3), (4, 1, 3)], 2),
        ];
        for (name, reads, expected) in table {
            let start = Instant::now();
            let at = |seconds: u64| start + Duration::from_secs(seconds);
            let (second, connection, beat) = reads[0];
            let mut silence = Silence::first(at(second), ConnectionId(connection), Some(EpochSeconds(beat)));
            for (second, connection, beat) in &reads[1..] {
                silence.read(at(*second), ConnectionId(*connection), Some(EpochSeconds(*beat)));
            }
            assert_eq!(silence.silent_for(), Duration::from_secs(expected), "{name}");
        }
    }

    #[test]
    fn a_beat_came_after_an_event_only_if_both_reads_did() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut silence = Silence::first(at(0), ConnectionId(1), Some(EpochSeconds(5)));
        silence.read(at(2), ConnectionId(1), Some(EpochSeconds(10)));
        assert!(silence.just_moved() && silence.beat_after(at(0)));
        assert!(!silence.beat_after(at(1)), "the beat may be older than the event");
        silence.read(at(3), ConnectionId(1), None);
        assert!(!silence.just_moved(), "a heartbeat that is gone is no beat");
        assert_eq!(silence.heartbeat(), Some(EpochSeconds(10)));
        assert_eq!(silence.silent_after(at(2)), Duration::from_secs(1));
    }
}
