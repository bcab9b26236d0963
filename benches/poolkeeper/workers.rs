//! Workers in bulk, without worker programs: pods as API objects, with what a kubelet would report of them, and pools as
//! gocraft/work v0.5.1 writes them.
//!
//! The pods belong to a kind of the benchmark's own that has a scale subresource and no controller, so that thousands
//! of them are there in seconds and nothing replaces them when they die.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use poolkeeper::api::job_queue::JobQueue;
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use crate::support::kube::{condition, wait_for};
use crate::support::pods::{now, rfc3339, terminated};

/// Requests to the API server under way at once.
pub const AT_ONCE: usize = 64;
/// The group of the kind that owns the pods.
const GROUP: &str = "bench.poolkeeper.dev";
/// What [`beating`] runs: all pools of some namespaces beat. Workers do it one by one; for poolkeeper it is the same.
const BEAT: &str = "for _, prefix in ipairs(ARGV) do
  local at = redis.call('TIME')[1]
  for _, pool in ipairs(redis.call('SMEMBERS', prefix .. ':worker_pools')) do
    redis.call('HSET', prefix .. ':worker_pools:' .. pool, 'heartbeat_at', at)
  end
end";

/// One worker: a pod, and the pool in it.
#[derive(Debug, Clone)]
pub struct Worker {
    /// Kubernetes namespace of the pod.
    pub namespace: String,
    /// Name of the pod, its host name.
    pub pod: String,
    /// Prefix of the keys in Redis, without its colon.
    pub prefix: String,
    /// Id of the pool.
    pub pool: String,
}

impl Worker {
    /// The name of its container.
    fn container(&self) -> String {
        format!("containerd://{}", self.pool)
    }

    /// Reports that its container was killed, and returns when the API server has taken it.
    pub async fn dies(&self, client: &Client) {
        let state = terminated(&self.pool, now() - 3600, now(), "OOMKilled", 137);
        self.report(client, state).await;
    }

    /// Reports that its container runs, for an hour by now.
    pub async fn runs(&self, client: &Client) {
        self.report(client, json!({"running": {"startedAt": rfc3339(now() - 3600)}})).await;
    }

    async fn report(&self, client: &Client, state: Value) {
        let status = json!({"status": {
            "phase": "Running",
            "containerStatuses": [{
                "name": "worker", "image": "none", "imageID": "", "ready": true, "restartCount": 0,
                "containerID": self.container(), "state": state,
            }],
        }});
        let pods = Api::<Pod>::namespaced(client.clone(), &self.namespace);
        pods.patch_status(&self.pod, &PatchParams::default(), &Patch::Merge(&status)).await.expect("a pod's status");
    }
}

/// Defines the kind that owns the pods.
pub async fn define_groups(client: &Client) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("groups.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"kind": "Group", "plural": "groups", "singular": "group"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                "subresources": {"scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                }},
            }],
        },
    });
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let name = format!("groups.{GROUP}");
    api.patch(&name, &PatchParams::apply("bench").force(), &Patch::Apply(&definition)).await.expect("a definition");
    wait_for("the kind that owns the pods", Duration::from_secs(30), || async {
        let served = api.get(&name).await.ok()?.status?.conditions?;
        served.iter().any(|one| one.type_ == "Established" && one.status == "True").then_some(())
    })
    .await;
}

/// Makes a namespace in which pods can be made.
pub async fn namespace(client: &Client, stem: &str) -> String {
    let wanted =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": format!("bench-{stem}-")}});
    let api = Api::<Namespace>::all(client.clone());
    let made = api.create(&PostParams::default(), &serde_json::from_value(wanted).unwrap()).await.expect("a namespace");
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), &made.name_any());
    wait_for("the service account of a namespace", Duration::from_secs(60), || async {
        accounts.get_opt("default").await.ok()?
    })
    .await;
    made.name_any()
}

/// A queue's wish: where it is, and what its spec says of jobs.
pub struct Queue<'a> {
    /// Kubernetes namespace.
    pub namespace: &'a str,
    /// Its name, and the namespace of its keys in Redis.
    pub name: &'a str,
    /// Its Redis.
    pub url: &'a str,
    /// `spec.jobs`.
    pub jobs: Value,
}

impl Queue<'_> {
    /// The pool id of a worker; also the id of its container.
    pub fn pool(&self, number: usize) -> String {
        let name =
            self.name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        format!("{name:08x}{number:016x}")
    }

    /// Makes the owner of its pods and the pods, which run.
    pub async fn pods(&self, client: &Client, from: usize, count: usize) -> Vec<Worker> {
        let kind = GroupVersionKind::gvk(GROUP, "v1", "Group");
        let groups =
            Api::<DynamicObject>::namespaced_with(client.clone(), self.namespace, &ApiResource::from_gvk(&kind));
        let group = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "Group", "metadata": {"name": self.name},
            "spec": {"replicas": count}, "status": {"replicas": count, "selector": format!("app={}", self.name)},
        });
        let group = groups.patch(self.name, &PatchParams::apply("bench").force(), &Patch::Apply(&group)).await;
        let owner = group.expect("an owner of pods").uid().expect("a uid");
        let workers = (from..from + count).map(|number| Worker {
            namespace: self.namespace.to_owned(),
            pod: format!("{}-{number}", self.name),
            prefix: self.name.to_owned(),
            pool: self.pool(number),
        });
        let made = stream::iter(workers).map(|worker| {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": worker.pod, "labels": {"app": self.name},
                    "ownerReferences": [{
                        "apiVersion": format!("{GROUP}/v1"), "kind": "Group", "name": self.name, "uid": owner, "controller": true,
                    }],
                },
                "spec": {"containers": [{"name": "worker", "image": "none"}], "automountServiceAccountToken": false},
            });
            async move {
                let pods = Api::<Pod>::namespaced(client.clone(), self.namespace);
                pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.expect("a pod");
                worker.runs(client).await;
                worker
            }
        });
        made.buffered(AT_ONCE).collect().await
    }

    /// Applies the `JobQueue`. `adopts`: its workers are the pods that [`Self::pods`] makes.
    pub async fn apply(&self, client: &Client, adopts: bool) {
        let mut spec = json!({
            "gocraftWork": {"namespace": self.name}, "redis": {"url": self.url}, "jobs": self.jobs,
        });
        if adopts {
            let target = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Group", "name": self.name});
            spec["workers"] = json!({"scaleTargetRef": target});
        }
        let queue = json!({"apiVersion": "poolkeeper.dev/v1alpha1", "kind": "JobQueue", "metadata": {"name": self.name}, "spec": spec});
        let api = Api::<JobQueue>::namespaced(client.clone(), self.namespace);
        api.patch(self.name, &PatchParams::apply("bench").force(), &Patch::Apply(&queue)).await.expect("a JobQueue");
    }
}

/// Waits until as many `JobQueue`s as wanted are ready, in these namespaces together.
pub async fn ready_in(client: &Client, namespaces: &[String], wanted: usize, bound: Duration) {
    let end = tokio::time::Instant::now() + bound;
    loop {
        let mut ready = 0;
        for namespace in namespaces {
            let api = Api::<JobQueue>::namespaced(client.clone(), namespace);
            let queues = api.list(&ListParams::default()).await.expect("JobQueues");
            let statuses = queues.iter().filter_map(|queue| queue.status.as_ref());
            ready += statuses.filter(|status| condition(status, "Ready").0 == "True").count();
        }
        if ready >= wanted {
            return;
        }
        assert!(tokio::time::Instant::now() < end, "{ready} of {wanted} JobQueues are ready after {bound:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Takes away all `JobQueue`s and pods of these namespaces, so that nothing of one stage is there in the next.
pub async fn clear(client: &Client, namespaces: &[String]) {
    for namespace in namespaces {
        let queues = Api::<JobQueue>::namespaced(client.clone(), namespace);
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        let (now, all) = (DeleteParams::default().grace_period(0), ListParams::default());
        let _ = queues.delete_collection(&now, &all).await.expect("no JobQueues");
        let _ = pods.delete_collection(&now, &all).await.expect("no pods");
        wait_for("an empty namespace", Duration::from_secs(60), || async {
            let gone = queues.list(&all).await.ok()?.items.is_empty() && pods.list(&all).await.ok()?.items.is_empty();
            gone.then_some(())
        })
        .await;
    }
}

/// The job that a worker runs, as Go writes it.
pub fn job(job_type: &str, id: &str) -> String {
    format!(r#"{{"name":"{job_type}","id":"{id}","t":1774958400,"args":{{"n":393087288629462191}}}}"#)
}

/// Writes the pools: each beats, knows these job types and runs one job of each of the `taken` first ones.
pub async fn pools(redis: &mut MultiplexedConnection, workers: &[Worker], types: &[&str], taken: usize) {
    let at = now();
    for some in workers.chunks(500) {
        let mut pipe = redis::pipe();
        for worker in some {
            let (prefix, pool) = (&worker.prefix, &worker.pool);
            pipe.sadd(format!("{prefix}:worker_pools"), pool).ignore();
            let beat = [
                ("heartbeat_at", at.to_string()),
                ("started_at", (at - 3599).to_string()),
                ("job_names", types.join(",")),
                ("concurrency", "10".into()),
                ("worker_ids", "w".into()),
                ("host", worker.pod.clone()),
                ("pid", "1".into()),
            ];
            pipe.hset_multiple(format!("{prefix}:worker_pools:{pool}"), &beat).ignore();
            pipe.sadd(format!("{prefix}:known_jobs"), types).ignore();
            for job_type in &types[..taken] {
                let base = format!("{prefix}:jobs:{job_type}");
                pipe.lpush(format!("{base}:{pool}:inprogress"), job(job_type, pool)).ignore();
                pipe.incr(format!("{base}:lock"), 1).ignore();
                pipe.hincr(format!("{base}:lock_info"), pool, 1).ignore();
            }
        }
        pipe.query_async::<()>(redis).await.expect("pools");
    }
}

/// Lets all pools of these key prefixes beat every 5 s, spread over the seconds, until the handle is dropped.
pub fn beating(redis: &MultiplexedConnection, prefixes: Vec<String>) -> AbortOnDropHandle<()> {
    let mut redis = redis.clone();
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut steps = tokio::time::interval(Duration::from_millis(100));
        for step in (0..50).cycle() {
            steps.tick().await;
            let some: Vec<&String> = prefixes.iter().skip(step).step_by(50).collect();
            if !some.is_empty() {
                let mut beat = redis::cmd("EVAL");
                beat.arg(BEAT).arg(0).arg(&some);
                beat.query_async::<()>(&mut redis).await.expect("beats");
            }
        }
    }))
}

/// Waits until all pools of a key prefix are bound to their containers.
pub async fn bound(redis: &MultiplexedConnection, prefix: &str, wanted: usize) {
    wait_for(&format!("{wanted} bindings of {prefix}"), Duration::from_secs(120), || async {
        let mut command = redis::cmd("HLEN");
        let bound: usize =
            command.arg(format!("{prefix}:poolkeeper:bindings")).query_async(&mut redis.clone()).await.ok()?;
        (bound >= wanted).then_some(())
    })
    .await;
}
