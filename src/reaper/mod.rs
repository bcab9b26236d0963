//! Which worker processes are dead, by which proof, and what that means for what they held.
//!
//! - [`pods`]: the watch over pods, trimmed to what a verdict needs, with a diff on every relist.
//! - [`container`], [`host`]: what a container's status says; which host name a pod's processes report.
//! - [`owner`]: which pods are a queue's workers, by selector and owner.
//! - [`binding`]: which container runs a pool.
//! - [`silence`]: how long a pool has said nothing, by our own clock.
//! - [`verdict`]: pure: living, dead by a proof, or undecided.
//! - [`judge`]: puts all of these together for one queue, look after look.

pub mod binding;
pub mod container;
pub mod host;
pub mod judge;
pub mod owner;
pub mod pods;
pub mod settle;
pub mod silence;
pub mod verdict;
