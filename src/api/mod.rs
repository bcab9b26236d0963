//! The resources of group `poolkeeper.dev`, their conditions, and the files that install them.

pub mod condition;
pub mod crd;
pub mod job_queue;
pub mod status;
pub mod template;

/// The API group of all resources.
pub const GROUP: &str = "poolkeeper.dev";
/// Annotation that stops all management of one resource while it is `"true"`.
pub const PAUSED_ANNOTATION: &str = "poolkeeper.dev/paused";
/// Label on what poolkeeper makes for a `JobQueue`; its value is the queue's name.
pub const JOB_QUEUE_LABEL: &str = "poolkeeper.dev/jobqueue";
/// Field manager of everything that poolkeeper applies.
pub const FIELD_MANAGER: &str = "poolkeeper";

/// The field manager that keeps a number of replicas in place which nobody specifies any more.
pub const REPLICAS_MANAGER: &str = "poolkeeper-replicas";
/// Finalizer that keeps a `JobQueue` until its workers have ended and what it pushed was taken back.
pub const FINALIZER: &str = "poolkeeper.dev/settle";
