//! poolkeeper keeps worker pools that take their jobs from Redis: it holds their caps, frees what dead workers held,
//! and repairs counts that went wrong.
//!
//! Every pass over a `JobQueue` is observe -> decide -> apply -> report, with a pure middle:
//!
//! - [`api`]: the resources and what their conditions say.
//! - [`protocol`]: what workers write to Redis, read and changed by the scripts below `lua/`.
//! - [`redis`]: connections, client tracking, and what each failure means.
//! - [`reaper`]: which worker processes are dead, and by which proof.
//! - [`scaling`]: how many workers there should be, and what to write for it.
//! - [`job_queue`]: one keeper task for each `JobQueue`, which brings the above together.

pub mod api;
pub mod app;
pub mod cli;
pub mod job_queue;
pub mod leader;
pub mod metrics;
pub mod protocol;
pub mod reaper;
pub mod redis;
pub mod scaling;
pub mod server;
pub mod telemetry;
