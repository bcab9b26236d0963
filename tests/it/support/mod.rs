//! What the tiers of tests share.

pub mod cluster;
pub mod kube;
pub mod operator;
pub mod pods;
pub mod pools;
pub mod proxy;
pub mod redis;
pub mod secured;
pub mod workers;
