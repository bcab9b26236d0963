//! On a real cluster: kubelet, workers that are real gocraft/work programs, Redis in a pod, and the operator as the chart
//! installs it, with two replicas and no right but those that the chart gives.

mod caps;
mod deaths;
mod grace;
mod monitor;
mod process;
mod replicas;
mod scaling;
mod trouble;

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use redis::aio::MultiplexedConnection;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::support::cluster::{as_root, images, operators_ready, restricted, running_container, setting, succeeded};
use crate::support::kube::{TestNamespace, client, wait_for, wait_or};
use crate::support::pools::Pools;
use crate::support::redis::run;
use crate::support::workers::Journal;

/// As whom the operator asks the API server.
const OPERATOR: &str = "system:serviceaccount:poolkeeper-system:poolkeeper";

/// A namespace with a Redis of its own, and what its workers write.
pub struct Stage {
    pub namespace: TestNamespace,
    /// A connection that is neither the workers' nor the operator's.
    pub redis: MultiplexedConnection,
    pub pools: Pools,
    pub journal: Journal,
    /// The Redis, as this machine reaches it.
    pub url: String,
    began: Timestamp,
}

impl Stage {
    /// Sets one up, with the operator ready beside it.
    pub async fn new(stem: &str) -> Self {
        Self::with_redis(stem, &[], "").await
    }

    /// The same; Redis gets more arguments, and `login` (`:PASSWORD@`) is needed.
    pub async fn with_redis(stem: &str, args: &[&str], login: &str) -> Self {
        operators_ready().await;
        let began = Timestamp::now();
        let namespace = namespace(stem).await;
        let port = deploy_redis(&namespace, args).await;
        let url = format!("redis://{login}{}:{port}/0", setting("NODE_1_ADDRESS"));
        let redis = wait_for("Redis to answer", Duration::from_secs(60), || connection(&url)).await;
        let (pools, journal) = (Pools::new(redis.clone(), "work"), Journal::follow(&namespace));
        Self { namespace, redis, pools, journal, url, began }
    }

    /// A spec for this Redis, as pods reach it; `more` is laid over it.
    pub fn spec(&self, more: Value) -> Value {
        let url = format!("redis://redis.{}.svc:6379/0", self.namespace.name);
        let mut spec = json!({"gocraftWork": {"namespace": "work"}, "redis": {"url": url}});
        let Value::Object(more) = more else { panic!("fields are wanted, not {more}") };
        for (field, value) in more {
            spec[field] = value;
        }
        spec
    }

    /// Puts jobs into the queue with the library's own Enqueuer, and gives their ids.
    pub fn enqueue(&self, job: &str, count: usize, args: &Value) -> Vec<String> {
        let mut enqueue = std::process::Command::new(images().join("bin/gocraft-worker"));
        enqueue.args(["enqueue", job, "-n", &count.to_string(), "-args", &args.to_string()]);
        enqueue.env("REDIS_URL", &self.url).env("WORK_NAMESPACE", "work");
        let ids: Vec<String> = succeeded(enqueue).lines().map(str::to_owned).collect();
        assert_eq!(ids.len(), count);
        ids
    }

    /// The bytes in a list, from left to right.
    pub async fn list(&self, rest: &str) -> Vec<Vec<u8>> {
        run(&mut self.redis.clone(), ["LRANGE", &key(rest), "0", "-1"]).await
    }

    /// The jobs in progress, by pool.
    pub async fn in_progress(&self, job: &str) -> Vec<(String, usize)> {
        let pattern = key(&format!("jobs:{job}:*:inprogress"));
        let keys: Vec<String> = run(&mut self.redis.clone(), ["KEYS", &pattern]).await;
        let mut found = Vec::new();
        for key in keys {
            let pool = key.rsplit(':').nth(1).expect("a pool").to_owned();
            let length: usize = run(&mut self.redis.clone(), ["LLEN", &key]).await;
            found.push((pool, length));
        }
        found
    }

    /// Waits until one pool runs as many jobs of a type and poolkeeper knows where it lives.
    pub async fn pool_with(&self, job: &str, count: usize) -> String {
        wait_for(&format!("a pool that runs {count} jobs"), Duration::from_secs(60), || async {
            let found = self.in_progress(job).await.into_iter().find(|(_, jobs)| *jobs == count)?;
            self.pools.is_bound(&found.0).await.then_some(found.0)
        })
        .await
    }

    /// Waits until each of the jobs has ended.
    pub async fn all_end(&self, ids: &[String], bound: Duration) {
        let ended = wait_or(bound, || async { self.journal.all_ended(ids).then_some(()) }).await;
        if ended.is_none() {
            let missing: Vec<_> = ids.iter().filter(|id| self.journal.runs(id).1 == 0).collect();
            panic!(
                "after {bound:?} these jobs have not ended: {missing:?}; waiting: {:?}",
                self.pools.waiting("mail").await
            );
        }
    }

    /// The pods of a Deployment whose container runs.
    pub async fn running(&self, app: &str) -> Vec<Pod> {
        let labels = ListParams::default().labels(&format!("app={app}"));
        let pods = self.namespace.api::<Pod>().list(&labels).await.expect("pods");
        pods.into_iter().filter(|pod| running_container(pod).is_some()).collect()
    }

    /// Waits until as many run.
    pub async fn wait_running(&self, app: &str, count: usize) -> Vec<Pod> {
        wait_for(&format!("{count} running pods of {app}"), Duration::from_secs(60), || async {
            let pods = self.running(app).await;
            (pods.len() == count).then_some(pods)
        })
        .await
    }

    /// The pod of Redis.
    pub async fn redis_pod(&self) -> Pod {
        let labels = ListParams::default().labels("app.kubernetes.io/name=redis");
        let pods = self.namespace.api::<Pod>().list(&labels).await.expect("pods");
        pods.into_iter().find(|pod| running_container(pod).is_some()).expect("a Redis that runs")
    }

    /// Ends the test: nothing was refused to the operator in it, so the chart gives all the rights that it takes.
    pub async fn end(self) {
        self.namespace.delete().await;
        let refused = refusals(self.began);
        assert!(refused.is_empty(), "rights that the chart does not give: {refused:#?}");
    }
}

/// A key's name.
pub fn key(rest: &str) -> String {
    format!("work:{rest}")
}

/// A namespace that takes harmless pods only. The definitions in the cluster are the chart's.
async fn namespace(stem: &str) -> TestNamespace {
    let client = client().await;
    let wanted = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": format!("{stem}-"), "labels": restricted()}});
    let made = Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &serde_json::from_value(wanted).unwrap())
        .await
        .expect("a namespace");
    TestNamespace { client, name: made.name_any() }
}

/// The Redis of `examples/`, with a port on the node, so that this machine reaches it.
async fn deploy_redis(namespace: &TestNamespace, args: &[&str]) -> i32 {
    let text = include_str!("../../../examples/redis.yaml");
    let documents = serde_yaml::Deserializer::from_str(text).map(|part| Value::deserialize(part).expect("YAML"));
    let mut port = None;
    for mut object in documents {
        if object["kind"] == "Service" {
            object["spec"]["type"] = json!("NodePort");
            let service = namespace.create::<Service>(object).await;
            port = service.spec.and_then(|spec| spec.ports?.first()?.node_port);
        } else {
            let container = &mut object["spec"]["template"]["spec"]["containers"][0];
            container["args"].as_array_mut().expect("arguments").extend(args.iter().map(|arg| json!(arg)));
            namespace.create::<Deployment>(object).await;
        }
    }
    port.expect("a port on the node")
}

async fn connection(url: &str) -> Option<MultiplexedConnection> {
    let client = redis::Client::open(url).expect("a URL");
    let patient = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(2)))
        .set_response_timeout(Some(Duration::from_secs(60)));
    let mut connection = client.get_multiplexed_async_connection_with_config(&patient).await.ok()?;
    redis::cmd("PING").query_async::<()>(&mut connection).await.ok()?;
    Some(connection)
}

/// What the API server refused to the operator since then for want of a right, as its audit log tells.
fn refusals(since: Timestamp) -> BTreeSet<String> {
    let log = succeeded(as_root(["cat", &setting("AUDIT_LOG")]));
    let forbidden = log.lines().filter(|line| line.contains(r#"k8s.io/decision":"forbid""#) && line.contains(OPERATOR));
    let requests = forbidden.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let is_new = |request: &Value| {
        let at: Option<Timestamp> = request["requestReceivedTimestamp"].as_str().and_then(|at| at.parse().ok());
        at.expect("a time") >= since
    };
    requests.filter(is_new).map(|request| format!("{} {}", request["verb"], request["requestURI"])).collect()
}
