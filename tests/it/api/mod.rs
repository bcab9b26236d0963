//! Against a real control plane, without kubelets: pods are made by the real controllers, and tests report for them what
//! a kubelet would.

mod caps;
mod deletion;
mod manifests;
mod pods;
mod reaping;
mod replicas;
mod sharing;
mod trouble;
mod workers;

use serde_json::{Value, json};

use crate::support::kube::TestNamespace;
use crate::support::operator::Operator;
use crate::support::pools::Pools;
use crate::support::redis::RedisServer;

/// A namespace, a Redis, and the workers' side of it.
pub struct Stage {
    pub namespace: TestNamespace,
    pub server: RedisServer,
    pub pools: Pools,
}

impl Stage {
    /// Sets one up.
    pub async fn new(stem: &str) -> Self {
        let namespace = TestNamespace::new(stem).await;
        let server = RedisServer::start().await;
        let pools = Pools::new(server.connection().await, "work");
        Self { namespace, server, pools }
    }

    /// A spec for this Redis; `more` is laid over it.
    pub fn spec(&self, more: impl Into<Value>) -> Value {
        let mut spec = json!({"gocraftWork": {"namespace": "work"}, "redis": {"url": self.server.url()}});
        for (field, value) in more.into().as_object().expect("fields") {
            spec[field] = value.clone();
        }
        spec
    }

    /// An operator for this namespace.
    pub async fn operator(&self) -> Operator {
        Operator::start(&self.namespace.name, &[]).await
    }
}
