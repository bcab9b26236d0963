//! Connections to Redis: how they are made, shared and lost, and what each failure means. Nothing here knows a protocol.
//!
//! - [`endpoint`]: which server, as whom; what a URL says.
//! - [`failure`]: why a call failed, as a condition's reason.
//! - [`script`]: a Lua script and its digest.
//! - [`dial`]: TCP, TLS and the handshake.
//! - [`client`]: calls over one shared connection that comes back by itself.
//! - [`connections`]: one client for all that use the same server with the same credentials.
//! - [`tracking`]: scripts that run again within milliseconds of a change of what they watch.

pub mod backoff;
pub mod client;
pub mod connections;
pub mod dial;
pub mod endpoint;
pub mod failure;
pub mod script;
pub mod tracking;

pub use ::redis::Value;
pub use client::{Call, Client};
pub use connections::Connections;
pub use endpoint::{Endpoint, Secret, Tls};
pub use failure::{Failure, Reason};
pub use script::LuaScript;
