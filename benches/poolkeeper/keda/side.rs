//! One of the two that are compared, with what it scales: a namespace, a Redis, and real workers in pods.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use redis::aio::MultiplexedConnection;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::support::cluster::{process_of_pod, setting};
use crate::support::kube::{TestNamespace, wait_for};
use crate::support::pods::now;
use crate::support::workers::{Journal, Workers};
use crate::watched::{Number, Watched};

/// How long fewer must have been enough before it is scaled down, in seconds: for both.
pub const CALM_SECONDS: u32 = 30;
/// How often KEDA looks, in seconds. Its default is 30.
pub const POLLING_SECONDS: u32 = 5;

/// Who scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scaler {
    /// By a `JobQueue`.
    Poolkeeper,
    /// By a `ScaledObject`, and a `HorizontalPodAutoscaler` made by it.
    Keda,
}

impl Scaler {
    /// Its name in the tables.
    pub fn name(self) -> String {
        match self {
            Self::Poolkeeper => "poolkeeper".into(),
            Self::Keda => format!("KEDA {}", std::env::var("BENCH_KEDA").unwrap_or_default()),
        }
    }
}

/// A queue and its workers, the same on both sides. Each has a database of its own.
#[derive(Debug, Clone, Copy)]
pub struct Queue {
    pub name: &'static str,
    pub database: u8,
    /// Jobs that one pod runs at once.
    pub concurrency: u32,
    pub max_replicas: u32,
    /// poolkeeper's `jobsPerReplica`, KEDA's `listLength`.
    pub jobs_per_replica: u32,
    /// The worker's compiled-in cap and, for poolkeeper, the spec's; 0: none.
    pub cap: u32,
    /// Of its pods.
    pub grace_seconds: i64,
}

/// One side.
pub struct Side {
    pub scaler: Scaler,
    pub namespace: TestNamespace,
    /// What its workers wrote.
    pub journal: Journal,
    pub watched: Watched,
    /// On the node, so that this machine reaches it.
    port: i32,
}

impl Side {
    /// Sets one up, without queues.
    pub async fn new(client: &Client, scaler: Scaler) -> Self {
        let stem = if scaler == Scaler::Keda { "bench-keda-" } else { "bench-poolkeeper-" };
        let wanted = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": stem}});
        let api = Api::<Namespace>::all(client.clone());
        let made = api.create(&PostParams::default(), &serde_json::from_value(wanted).unwrap()).await;
        let namespace = TestNamespace { client: client.clone(), name: made.expect("a namespace").name_any() };
        let port = deploy_redis(&namespace).await;
        let watched = Watched::default().deployments(namespace.api(), "").pods(namespace.api());
        let side = Self { scaler, journal: Journal::follow(&namespace), namespace, watched, port };
        wait_for("Redis to answer", Duration::from_secs(120), || side.try_connect(0)).await;
        side
    }

    async fn try_connect(&self, database: u8) -> Option<MultiplexedConnection> {
        let url = format!("redis://{}:{}/{database}", setting("NODE_1_ADDRESS"), self.port);
        let config = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(5)))
            .set_response_timeout(Some(Duration::from_secs(20)));
        let client = redis::Client::open(url).expect("a URL");
        let mut redis = client.get_multiplexed_async_connection_with_config(&config).await.ok()?;
        redis::cmd("PING").query_async::<()>(&mut redis).await.ok()?;
        Some(redis)
    }

    /// A connection to a queue's database.
    pub async fn redis(&self, queue: &Queue) -> MultiplexedConnection {
        wait_for("Redis to answer", Duration::from_secs(20), || self.try_connect(queue.database)).await
    }

    /// Makes a queue's workers, none at first, and what scales them.
    pub async fn apply(&self, queue: &Queue) {
        let workers = Workers {
            name: queue.name,
            replicas: 0,
            jobs: if queue.cap == 0 { "mail:0" } else { "mail:2" },
            concurrency: queue.concurrency,
            grace_seconds: queue.grace_seconds,
            redis_url: format!("redis://redis:6379/{}", queue.database),
            ..Workers::default()
        };
        assert!([0, 2].contains(&queue.cap), "the workers of this benchmark know these caps only");
        workers.apply(&self.namespace).await;
        self.release_replicas(queue).await;
        match self.scaler {
            Scaler::Poolkeeper => self.job_queue(queue).await,
            Scaler::Keda => self.scaled_object(queue).await,
        }
    }

    /// `spec.replicas` is nobody's but the scaler's from here on.
    async fn release_replicas(&self, queue: &Queue) {
        let deployments = self.namespace.api::<Deployment>();
        let unmanaged = json!({"metadata": {"managedFields": [{}]}});
        let patched = deployments.patch(queue.name, &PatchParams::default(), &Patch::Merge(&unmanaged)).await;
        patched.expect("a Deployment without managed fields");
    }

    async fn job_queue(&self, queue: &Queue) {
        let mut job = json!({"name": "mail"});
        if queue.cap > 0 {
            job["maxConcurrency"] = json!(queue.cap);
        }
        let spec = json!({
            "gocraftWork": {"namespace": "work"},
            "redis": {"url": format!("redis://redis.{}.svc:6379/{}", self.namespace.name, queue.database)},
            "jobs": [job],
            "workers": {
                "scaleTargetRef": {"kind": "Deployment", "name": queue.name}, "concurrency": queue.concurrency,
            },
            "scaling": {
                "maxReplicas": queue.max_replicas, "jobsPerReplica": queue.jobs_per_replica,
                "scaleDownStabilizationSeconds": CALM_SECONDS,
            },
        });
        self.namespace.job_queue(queue.name, spec).await.expect("a JobQueue");
        self.namespace
            .status(queue.name, "scaling", |status| {
                crate::support::kube::condition(status, "ScalingActive").0 == "True"
            })
            .await;
    }

    async fn scaled_object(&self, queue: &Queue) {
        let kind = GroupVersionKind::gvk("keda.sh", "v1alpha1", "ScaledObject");
        let api = Api::<DynamicObject>::namespaced_with(
            self.namespace.client.clone(),
            &self.namespace.name,
            &ApiResource::from_gvk(&kind),
        );
        let object = json!({
            "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": queue.name},
            "spec": {
                "scaleTargetRef": {"name": queue.name},
                "pollingInterval": POLLING_SECONDS, "cooldownPeriod": CALM_SECONDS,
                "minReplicaCount": 0, "maxReplicaCount": queue.max_replicas,
                "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": {
                    "stabilizationWindowSeconds": CALM_SECONDS,
                }}}},
                "triggers": [{"type": "redis", "metadata": {
                    "address": format!("redis.{}.svc:6379", self.namespace.name),
                    "listName": "work:jobs:mail", "listLength": queue.jobs_per_replica.to_string(),
                    "databaseIndex": queue.database.to_string(),
                }}],
            },
        });
        api.patch(queue.name, &PatchParams::apply("bench").force(), &Patch::Apply(&object))
            .await
            .expect("a ScaledObject");
        wait_for("a ScaledObject that is ready", Duration::from_secs(120), || async {
            let object = api.get(queue.name).await.ok()?;
            let conditions = object.data["status"]["conditions"].as_array()?.clone();
            conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True").then_some(())
        })
        .await;
    }

    /// Puts jobs into a queue, as the library's Enqueuer does. The first one runs first.
    pub async fn push(&self, queue: &Queue, redis: &mut MultiplexedConnection, jobs: &[(String, u64)]) -> Instant {
        let texts =
            jobs.iter().map(|(id, ms)| json!({"name": "mail", "id": id, "t": now(), "args": {"ms": ms}}).to_string());
        let texts: Vec<String> = texts.collect();
        let mut pipe = redis::pipe();
        pipe.sadd("work:known_jobs", "mail").ignore();
        pipe.lpush("work:jobs:mail", texts).ignore();
        let sent = Instant::now();
        pipe.query_async::<()>(redis).await.unwrap_or_else(|error| panic!("jobs for {}: {error}", queue.name));
        sent
    }

    /// How many jobs wait, and the ids of those in progress.
    pub async fn jobs(&self, redis: &mut MultiplexedConnection) -> (usize, BTreeSet<String>) {
        let waiting: usize = redis::cmd("LLEN").arg("work:jobs:mail").query_async(redis).await.expect("a length");
        let lists: Vec<String> =
            redis::cmd("KEYS").arg("work:jobs:mail:*:inprogress").query_async(redis).await.expect("lists");
        let mut running = BTreeSet::new();
        for list in lists {
            let jobs: Vec<String> =
                redis::cmd("LRANGE").arg(list).arg(0).arg(-1).query_async(redis).await.expect("jobs");
            let ids = jobs.iter().filter_map(|job| serde_json::from_str::<Value>(job).ok());
            running.extend(ids.filter_map(|job| Some(job["id"].as_str()?.to_owned())));
        }
        (waiting, running)
    }

    /// Waits until nothing waits and nothing runs.
    pub async fn done(&self, redis: &mut MultiplexedConnection, bound: Duration) -> Option<Instant> {
        let end = Instant::now() + bound;
        let mut ticks = tokio::time::interval(Duration::from_millis(200));
        while Instant::now() < end {
            ticks.tick().await;
            let (waiting, running) = self.jobs(redis).await;
            if waiting == 0 && running.is_empty() {
                return Some(Instant::now());
            }
        }
        None
    }

    /// Waits until a queue has no pod any more, and none is asked for. False when that did not come.
    pub async fn at_zero(&self, queue: &Queue, bound: Duration) -> bool {
        let is_zero =
            |number| self.watched.now(number, &self.namespace.name, queue.name).is_none_or(|(_, many)| many == 0);
        crate::support::kube::wait_or(bound, || async {
            (is_zero(Number::Replicas) && is_zero(Number::Pods)).then_some(())
        })
        .await
        .is_some()
    }
}

/// The Redis of `examples/`, with a port on the node. Gives the port.
async fn deploy_redis(namespace: &TestNamespace) -> i32 {
    let text = include_str!("../../../examples/redis.yaml");
    let mut port = None;
    for part in serde_yaml::Deserializer::from_str(text) {
        let mut object = Value::deserialize(part).expect("YAML");
        if object["kind"] == "Service" {
            object["spec"]["type"] = json!("NodePort");
            let service = namespace.create::<Service>(object).await;
            port = service.spec.and_then(|spec| spec.ports?.first()?.node_port);
        } else {
            namespace.create::<Deployment>(object).await;
        }
    }
    port.expect("a port on the node")
}

/// Resident memory now and at its peak of the pods' processes in a namespace, in MiB, by pod.
pub async fn memory(client: &Client, namespace: &str) -> Vec<(String, f64, f64)> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace).list(&ListParams::default()).await.expect("pods");
    let read = |pod: &Pod| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", process_of_pod(pod))).expect("a process");
        let mib = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a field");
            line.trim().trim_end_matches(" kB").parse::<f64>().expect("a size") / 1024.0
        };
        (pod.name_any(), mib("VmRSS:"), mib("VmHWM:"))
    };
    pods.iter().map(read).collect()
}
