//! Against a real Redis: every script, connections, and tracking.

mod acl;
mod backlog;
mod bookkeeping;
mod bounded;
mod caps;
mod connect;
mod due;
mod fence;
mod fixture;
mod forget;
mod model;
mod observe;
mod race;
mod settle;
mod tls;
