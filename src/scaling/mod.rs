//! How many replicas there should be, and what to do about it now. The decision is pure: facts in, a [`Decision`] out.
//!
//! How the number comes about, file by file:
//!
//! - [`demand`](mod@demand): each job type's runnable and running jobs, as far as its cap lets them run, become
//!   replicas by ratio.
//! - `growth`: more of them while jobs wait too long.
//! - [`history`]: what was recommended lately, below which nothing is lowered, and what was added within a minute.
//! - [`rules`]: what the resource allows; its bounds come last, and always.
//! - [`decision`]: puts these together, and says what to write.
//! - `lowering`, [`pods`]: how far a target may be lowered without ending a job, and the deletion costs that it takes.
//! - `reason`: the decision in one sentence.
//!
//! Around it are [`rivals`], who else would scale a target, and [`apply`], which carries a decision out.
//!
//! Carries out the paragraph on scaling: the number follows from runnable backlog, running jobs and wait; it is capped
//! by what the caps let run, by `minReplicas` and `maxReplicas`, and on the way down by the pods that run a job.

pub mod apply;
pub mod decision;
pub mod demand;
mod growth;
pub mod history;
mod lowering;
pub mod pods;
mod reason;
pub mod rivals;
pub mod rules;

#[cfg(test)]
pub(crate) mod tests;

pub use decision::{Decision, Facts, Limit, Step, TargetKind, decide};
pub use demand::{Demand, JobTypeFacts, Unread, demand, runnable};
pub use history::History;
pub use pods::{PodFacts, PodPhase, PodUid};
pub use rules::Rules;
