//! Which worker processes are dead, by which proof, and what that means for what they held.
//!
//! - [`pods`]: the watch over pods, trimmed to what a verdict needs, with a diff on every relist.
//! - [`owner`]: which pods are a queue's workers, by selector and owner.
//! - [`binding`]: which container runs a pool.
//! - [`silence`]: how long a pool has said nothing, by our own clock.
//! - [`verdict`]: pure: living, dead by a proof, or undecided.
//! - [`settle`]: gives back what dead pools held, and forgets them.

pub mod binding;
