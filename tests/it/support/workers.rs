//! Real workers in pods, and what they did: each start and end of a job, out of their logs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::TryStreamExt as _;
use futures::io::AsyncBufReadExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, LogParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::kube::TestNamespace;

/// A Deployment of `examples/gocraft-worker`.
pub struct Workers {
    /// Its name, and the value of its pods' label `app`.
    pub name: &'static str,
    pub replicas: i32,
    /// Job types with their compiled-in caps, as `mail:4,report:0`.
    pub jobs: &'static str,
    pub concurrency: u32,
    pub grace_seconds: i64,
    pub redis_url: String,
    /// Something that has to end before the worker starts.
    pub init: Option<Value>,
}

impl Default for Workers {
    fn default() -> Self {
        Self {
            name: "w",
            replicas: 1,
            jobs: "mail:0",
            concurrency: 4,
            grace_seconds: 30,
            redis_url: "redis://redis:6379/0".into(),
            init: None,
        }
    }
}

/// What the restricted standard asks of a container.
pub fn harmless() -> Value {
    json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}})
}

impl Workers {
    /// A `scaleTargetRef` to it.
    pub fn target(&self) -> Value {
        json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": self.name}})
    }

    /// Makes or changes it.
    pub async fn apply(&self, namespace: &TestNamespace) {
        namespace
            .api::<Deployment>()
            .patch(self.name, &PatchParams::apply("test").force(), &Patch::Apply(&self.deployment()))
            .await
            .expect("a Deployment of workers");
    }

    /// What is made.
    pub fn deployment(&self) -> Value {
        let labels = json!({"app": self.name});
        let mut pod = json!({
            "terminationGracePeriodSeconds": self.grace_seconds,
            "automountServiceAccountToken": false,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "worker", "image": "localhost/gocraft-worker:dev", "imagePullPolicy": "IfNotPresent",
                "env": [
                    {"name": "REDIS_URL", "value": self.redis_url},
                    {"name": "WORK_NAMESPACE", "value": "work"},
                    {"name": "WORK_CONCURRENCY", "value": self.concurrency.to_string()},
                    {"name": "WORK_JOBS", "value": self.jobs},
                ],
                "securityContext": harmless(),
            }],
        });
        if let Some(init) = &self.init {
            pod["initContainers"] = json!([init]);
        }
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": self.name},
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        })
    }
}

/// One line of a worker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Line {
    pub time: Timestamp,
    pub event: String,
    pub pool: String,
    pub host: String,
    #[serde(default)]
    pub job_id: String,
    #[serde(default)]
    pub job: String,
}

/// All that the workers of a namespace wrote: JSON lines, and those that are none, which are the library's.
#[derive(Default)]
struct Written {
    lines: BTreeSet<Line>,
    others: BTreeSet<String>,
}

/// Follows the logs of all workers in a namespace, until it is dropped. A pod's last lines are read although its object is
/// gone by then.
pub struct Journal {
    written: Arc<Mutex<Written>>,
    _task: AbortOnDropHandle<()>,
}

impl Journal {
    pub fn follow(namespace: &TestNamespace) -> Self {
        let written = Arc::<Mutex<Written>>::default();
        let task = tokio::spawn(follow_all(namespace.api(), written.clone()));
        Self { written, _task: AbortOnDropHandle::new(task) }
    }

    /// All lines so far, in the order of time.
    pub fn lines(&self) -> Vec<Line> {
        self.written.lock().unwrap().lines.iter().cloned().collect()
    }

    /// What the library wrote.
    pub fn says(&self, text: &str) -> bool {
        self.written.lock().unwrap().others.iter().any(|line| line.contains(text))
    }

    /// How often each job has this event.
    pub fn count(&self, event: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for line in self.lines().into_iter().filter(|line| line.event == event && !line.job_id.is_empty()) {
            *counts.entry(line.job_id).or_default() += 1;
        }
        counts
    }

    /// Starts and ends of one job.
    pub fn runs(&self, id: &str) -> (usize, usize) {
        let of = |event| self.count(event).get(id).copied().unwrap_or(0);
        (of("start"), of("end"))
    }

    /// Whether all of these have ended.
    pub fn all_ended(&self, ids: &[String]) -> bool {
        let ended = self.count("end");
        ids.iter().all(|id| ended.contains_key(id))
    }

    /// How many jobs of a type ran when each of them had started, with the time of it.
    pub fn running_at_starts(&self, job: &str) -> Vec<(Timestamp, i64)> {
        let (mut running, mut at_starts) = (0, Vec::new());
        for line in self.lines().into_iter().filter(|line| line.job == job) {
            match line.event.as_str() {
                "start" => {
                    running += 1;
                    at_starts.push((line.time, running));
                }
                "end" => running -= 1,
                _ => {}
            }
        }
        at_starts
    }
}

async fn follow_all(pods: Api<Pod>, written: Arc<Mutex<Written>>) {
    let mut seen = BTreeSet::<String>::new();
    let mut followers = tokio::task::JoinSet::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(150));
    loop {
        ticks.tick().await;
        let Ok(list) = pods.list(&ListParams::default()).await else { continue };
        for pod in list {
            for (id, previous) in containers(&pod) {
                if seen.insert(id) {
                    followers.spawn(follow(pods.clone(), pod.name_any(), previous, written.clone()));
                }
            }
        }
    }
}

/// Ids of a pod's worker containers that have a log, and whether each is the one before. A restarted one's log is asked for
/// as the one before too, since the request for it may have come when it had been replaced.
fn containers(pod: &Pod) -> Vec<(String, bool)> {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let mut found = Vec::new();
    for status in statuses.into_iter().flatten().filter(|status| status.name == "worker") {
        let state = status.state.as_ref();
        let has_begun = state.is_some_and(|state| state.running.is_some() || state.terminated.is_some());
        if let (Some(id), true) = (&status.container_id, has_begun) {
            found.push((id.clone(), false));
        }
        let last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref()?.container_id.as_ref());
        if let Some(id) = last {
            found.push((format!("{id} before"), true));
        }
    }
    found
}

async fn follow(pods: Api<Pod>, pod: String, previous: bool, written: Arc<Mutex<Written>>) {
    let asked = LogParams { container: Some("worker".into()), follow: !previous, previous, ..LogParams::default() };
    let Ok(log) = pods.log_stream(&pod, &asked).await else { return };
    let mut lines = log.lines();
    while let Ok(Some(text)) = lines.try_next().await {
        let mut written = written.lock().unwrap();
        match serde_json::from_str(&text) {
            Ok(line) => written.lines.insert(line),
            Err(_) => written.others.insert(text),
        };
    }
}
