//! The reconciler of `JobQueue`: one [`keeper`] task for each, so that one queue's slow Redis delays no other.
//!
//! - [`watch`]: starts and ends keepers as resources come and go.
//! - [`keeper`]: waits for whatever comes next; [`background`]: what is asked of the API server meanwhile,
//!   each in a [`slot`].
//! - [`link`]: one queue's way to its Redis namespace; [`caps`]: what is held there.
//! - [`access`]: from the spec and its Secrets to a Redis endpoint.
//! - [`workers`]: which pods are the workers; the Deployment that a template makes.
//! - [`owned`]: notices when a Deployment of ours was changed.
//! - [`ownership`]: pure: which job types are this queue's to hold, where several claim them.
//! - [`pass`]: observe, judge, settle, once.
//! - [`audit`]: pure: which counts don't match what runs.
//! - [`status`], [`unresponsive`]: pure: what is reported; [`reporter`], [`report`]: when and how it is written; [`events`]: Events from the record.
//! - [`scale_facts`]: pure: what one look says of scaling; [`scale`]: has [`crate::scaling`] decide by it; [`scale_task`]:
//!   what is written then; [`wake`]: the first job of an idle queue; [`contention`]: pure: who else writes the replicas;
//!   [`standing`]: whether the target is ours to scale.
//! - [`numbers`]: a queue's own job types, and their metrics.
//! - [`outcomes`]: what a keeper makes of what its tasks found.
//! - [`deletion`]: what is awaited and taken back before a resource goes; [`farewell`]: does it.

pub mod access;
pub mod audit;
pub mod background;
pub mod caps;
pub mod contention;
pub mod context;
pub mod deletion;
pub mod events;
mod farewell;
pub mod keeper;
pub mod link;
mod numbers;
mod outcomes;
pub mod owned;
pub mod ownership;
pub mod pass;
pub mod report;
pub mod reporter;
pub mod scale;
pub mod scale_facts;
pub mod scale_task;
pub mod slot;
mod standing;
pub mod status;
pub mod unresponsive;
pub mod wake;
pub mod watch;
pub mod workers;
