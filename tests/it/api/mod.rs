//! Against a real control plane, without kubelets: pods are made by the real controllers, and tests report for them what
//! a kubelet would.

mod caps;
mod deletion;
mod manifests;
mod pods;
mod reaping;
mod replicas;
mod scaling;
mod scaling_down;
mod scaling_loading;
mod scaling_others;
mod scaling_rights;
mod sharing;
mod trouble;
mod workers;

use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use crate::support::kube::TestNamespace;
use crate::support::operator::Operator;
use crate::support::pods::{deployment, now, pods_of, runs};
use crate::support::pools::Pools;
use crate::support::redis::RedisServer;

/// A namespace, a Redis, and the workers' side of it.
pub struct Stage {
    pub namespace: TestNamespace,
    pub server: RedisServer,
    pub pools: Pools,
}

/// A worker pod whose pool beats.
pub struct Worker {
    /// The pod's name.
    pub pod: String,
    /// When the test began, epoch seconds.
    pub start: i64,
    /// The pool beats until this is dropped.
    pub beats: AbortOnDropHandle<()>,
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

    /// A Deployment `w` with one pod, whose container `c1` runs the pool `A` for a minute now and holds these jobs of type
    /// `mail`.
    pub async fn worker(&self, jobs: &[&str]) -> Worker {
        deployment(&self.namespace, "w", 1).await;
        let pod = pods_of(&self.namespace, "app=w", 1).await.remove(0);
        let start = now();
        runs(&self.namespace, &pod, "c1", start - 60).await;
        let beats = self.pools.beating("A", start - 59, &pod, "mail").await;
        self.pools.takes("A", "mail", jobs).await;
        Worker { pod, start, beats }
    }

    /// An operator for this namespace.
    pub async fn operator(&self) -> Operator {
        Operator::start(&self.namespace.name, &[]).await
    }
}
