//! What a judge remembers of one pool from look to look.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::protocol::{ConnectionId, EpochSeconds, PoolSeen};
use crate::reaper::binding::Binding;
use crate::reaper::host::HostKey;
use crate::reaper::silence::Silence;

/// A pool that shows up counts as appeared only if the look before was no longer ago than this; else it may be old.
const APPEARS_WITHIN: Duration = Duration::from_secs(15);

/// One pool over all looks that showed it without interruption.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub(super) struct Memory {
    /// What its heartbeat said of its process; kept when somebody deletes the heartbeat.
    pub beat: Option<Process>,
    /// Whether the last look showed a heartbeat.
    pub present: bool,
    /// Whether the set of worker pools named it in the last look.
    pub listed: bool,
    /// Its heartbeat over all reads.
    pub silence: Silence,
    /// Whether the last look was the first to show a heartbeat, and the one before was recent.
    pub appeared: bool,
    /// When it was first seen to be among the reaped.
    pub reaped_seen: Option<Instant>,
    /// Whether it was said that it beats again all the same.
    pub said_to_beat_again: bool,
    /// The binding that we made, until Redis has it.
    pub made: Option<Box<MadeBinding>>,
}

/// What a heartbeat says of the process that sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    /// `started_at` of the pool.
    pub started_at: EpochSeconds,
    /// Its host name.
    pub host: HostKey,
    /// Its process id, in its own pid namespace.
    pub pid: Arc<str>,
}

/// A binding of ours that Redis may not have yet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MadeBinding {
    /// The binding.
    pub binding: Binding,
    /// What Redis had when we made it.
    pub replaces: Option<Binding>,
}

impl Memory {
    /// The memory after one more look, begun at `now`; `last_look` is when the one before was.
    pub(super) fn after(
        old: Option<Box<Self>>,
        seen: &PoolSeen,
        now: Instant,
        connection: ConnectionId,
        last_look: Option<Instant>,
    ) -> Box<Self> {
        let heartbeat_at = seen.heartbeat.as_ref().map(|beat| beat.heartbeat_at);
        let process = seen.heartbeat.as_ref().map(|beat| Process {
            started_at: beat.started_at,
            host: HostKey::of(&beat.host),
            pid: beat.pid.clone(),
        });
        let recent = last_look.is_some_and(|last| now.saturating_duration_since(last) <= APPEARS_WITHIN);
        match old {
            Some(mut memory) => {
                memory.silence.read(now, connection, heartbeat_at);
                memory.appeared = memory.beat.is_none() && process.is_some() && recent;
                memory.present = process.is_some();
                memory.listed = seen.listed;
                memory.beat = process.or(memory.beat);
                memory
            }
            None => Box::new(Self {
                appeared: process.is_some() && recent,
                present: process.is_some(),
                listed: seen.listed,
                beat: process,
                silence: Silence::first(now, connection, heartbeat_at),
                reaped_seen: None,
                said_to_beat_again: false,
                made: None,
            }),
        }
    }

    /// Whether the last look is a moment at which a binding may be made.
    pub(super) fn shows_life(&self) -> bool {
        self.appeared || self.silence.just_moved()
    }

    /// Takes note of what Redis has: once it has our binding, or another replica's newer one, ours is forgotten.
    pub(super) fn settle_binding(&mut self, kept: Option<&Binding>) {
        if self.made.as_ref().is_some_and(|made| kept.is_some() && kept != made.replaces.as_ref()) {
            self.made = None;
        }
    }

    /// The binding that counts: ours until Redis has it.
    pub(super) fn binding<'a>(&'a self, kept: Option<&'a Binding>) -> Option<&'a Binding> {
        self.made.as_ref().map(|made| &made.binding).or(kept)
    }

    /// Set when the pool was reaped within the last day: whether it was seen to beat since.
    pub(super) fn reaped_beats_again(&self) -> Option<bool> {
        self.reaped_seen.map(|seen| self.silence.beat_after(seen))
    }
}
