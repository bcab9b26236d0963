//! Integration tests, a module a tier: [`redis`] against real Redis servers, [`api`] against a real control plane,
//! [`e2e`] on a real cluster with real workers. `hack/test/tier` starts what each needs.

mod api;
mod e2e;
mod redis;
mod support;
