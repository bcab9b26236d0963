//! On the way down: no pod ends while it runs a job.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

use super::Stage;
use super::scaling::scaled;
use crate::support::kube::{wait_for, wait_or};
use crate::support::pods::{deployment, node, now, pods_of, report, rfc3339, runs};
use crate::support::redis::run;

const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

impl Stage {
    /// So many pods of the Deployment `w`, each with a pool that is named as the pod and beats for ever.
    async fn workers(&self, count: usize) -> (Vec<String>, Vec<tokio_util::task::AbortOnDropHandle<()>>) {
        deployment(&self.namespace, "w", i32::try_from(count).unwrap()).await;
        let pods = pods_of(&self.namespace, "app=w", count).await;
        let (start, mut beats) = (now(), Vec::new());
        for pod in &pods {
            runs(&self.namespace, pod, &format!("c-{pod}"), start - 60).await;
            beats.push(self.pools.beating(pod, start - 59, pod, "mail").await);
        }
        (pods, beats)
    }

    async fn finishes(&self, pool: &str) {
        let mut redis = self.pools.redis.clone();
        let base = "work:jobs:mail";
        run::<(), _>(&mut redis, ["DEL", &format!("{base}:{pool}:inprogress")]).await;
        run::<(), _>(&mut redis, ["DECR", &format!("{base}:lock")]).await;
        run::<(), _>(&mut redis, ["HINCRBY", &format!("{base}:lock_info"), pool, "-1"]).await;
    }

    async fn cost(&self, pod: &str) -> Option<String> {
        self.namespace.api::<Pod>().get(pod).await.ok()?.annotations().get(COST).cloned()
    }

    async fn set_cost(&self, pod: &str, cost: &str) {
        let body = json!({"metadata": {"annotations": {COST: cost}}});
        let params = kube::api::PatchParams::default();
        self.namespace.api::<Pod>().patch(pod, &params, &kube::api::Patch::Merge(&body)).await.unwrap();
    }

    async fn live(&self) -> Vec<String> {
        let pods = self.namespace.api::<Pod>().list(&kube::api::ListParams::default().labels("app=w")).await.unwrap();
        pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).map(ResourceExt::name_any).collect()
    }
}

#[tokio::test]
async fn busy_pods_are_marked_first_and_stay() {
    let stage = Stage::new("busy").await;
    let (pods, _beats) = stage.workers(5).await;
    stage.pools.takes(&pods[1], "mail", &["a"]).await;
    stage.pools.takes(&pods[3], "mail", &["b"]).await;
    let operator = stage.operator().await;
    stage
        .namespace
        .job_queue("q", scaled(&stage, json!({"jobsPerReplica": 4, "scaleDownStabilizationSeconds": 0})))
        .await
        .unwrap();
    // By ratio one would do; two run jobs.
    stage.until_replicas(2, Duration::from_secs(30)).await;
    let left = wait_for("two pods", Duration::from_secs(20), || async {
        let live = stage.live().await;
        (live.len() == 2).then_some(live)
    })
    .await;
    assert!(left.contains(&pods[1]) && left.contains(&pods[3]), "{left:?} of {pods:?}");
    assert!(stage.cost(&pods[1]).await.is_some());
    stage.passes(&operator, "q", 3).await;
    assert_eq!(stage.replicas().await, 2);

    stage.finishes(&pods[1]).await;
    stage.until_replicas(1, Duration::from_secs(20)).await;
    wait_for("one pod", Duration::from_secs(20), || async { (stage.live().await == [pods[3].clone()]).then_some(()) })
        .await;
    stage.finishes(&pods[3]).await;
    stage.until_replicas(0, Duration::from_secs(20)).await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn a_cost_of_the_users_own_comes_back_when_its_pod_is_idle() {
    let stage = Stage::new("own-cost").await;
    let (pods, _beats) = stage.workers(3).await;
    for (pod, job) in [(&pods[0], "a"), (&pods[1], "b")] {
        stage.pools.takes(pod, "mail", &[job]).await;
    }
    // Without poolkeeper's it would be the first to go.
    stage.set_cost(&pods[0], "-5").await;
    let _operator = stage.operator().await;
    stage
        .namespace
        .job_queue("q", scaled(&stage, json!({"minReplicas": 1, "scaleDownStabilizationSeconds": 0})))
        .await
        .unwrap();
    stage.until_replicas(2, Duration::from_secs(30)).await;
    wait_for("the idle one to go", Duration::from_secs(20), || async {
        let live = stage.live().await;
        (live.len() == 2 && live.contains(&pods[0]) && live.contains(&pods[1])).then_some(())
    })
    .await;
    assert_eq!(stage.cost(&pods[0]).await.as_deref(), Some("1000000000"));
    // Idle again: it is by the user's cost that it goes, and not the other one.
    let watched = stage.namespace.api::<Pod>();
    stage.finishes(&pods[0]).await;
    let cost = wait_for("its own cost", Duration::from_secs(20), || async {
        let cost = watched.get(&pods[0]).await.ok()?.annotations().get(COST).cloned()?;
        (cost != "1000000000").then_some(cost)
    })
    .await;
    assert_eq!(cost, "-5");
    wait_for("it to go", Duration::from_secs(20), || async { (stage.live().await == [pods[1].clone()]).then_some(()) })
        .await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn a_busy_pod_that_is_not_ready_holds_everything() {
    let stage = Stage::new("unready").await;
    let (pods, _beats) = stage.workers(3).await;
    stage.pools.takes(&pods[0], "mail", &["a"]).await;
    let start = now();
    let container = json!({"containerID": format!("containerd://c-{}", pods[0]), "ready": false, "state": {"running": {"startedAt": rfc3339(start - 60)}}});
    report(&stage.namespace, &pods[0], "Running", container).await;
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    stage
        .namespace
        .api::<Pod>()
        .patch_status(&pods[0], &kube::api::PatchParams::default(), &kube::api::Patch::Strategic(&unready))
        .await
        .unwrap();
    let operator = stage.operator().await;
    stage.namespace.job_queue("q", scaled(&stage, json!({"scaleDownStabilizationSeconds": 0}))).await.unwrap();
    stage.until_it_scales("q").await;
    stage.passes(&operator, "q", 3).await;
    assert_eq!(stage.replicas().await, 3, "it would be the first to go, whatever its cost");
    runs(&stage.namespace, &pods[0], &format!("c-{}", pods[0]), start - 60).await;
    stage.until_replicas(1, Duration::from_secs(20)).await;
    let left =
        wait_or(Duration::from_secs(20), || async { Some(stage.live().await).filter(|live| live.len() == 1) }).await;
    assert_eq!(left, Some(vec![pods[0].clone()]));
    stage.namespace.delete().await;
}

#[tokio::test]
async fn nothing_is_lowered_before_it_was_watched_for_a_window() {
    let stage = Stage::new("window").await;
    deployment(&stage.namespace, "w", 3).await;
    let operator = stage.operator().await;
    stage.namespace.job_queue("q", scaled(&stage, json!({"scaleDownStabilizationSeconds": 8}))).await.unwrap();
    let began = std::time::Instant::now();
    stage.until_replicas(0, Duration::from_secs(30)).await;
    assert!(began.elapsed() >= Duration::from_secs(7), "lowered after {:?}", began.elapsed());
    drop(operator);
    stage.namespace.delete().await;
}

#[tokio::test]
async fn a_stateful_set_keeps_the_highest_ordinal_that_is_busy() {
    for start in [0, 5] {
        let stage = Stage::new("ordinals").await;
        node(&stage.namespace).await;
        stage
            .namespace
            .create::<StatefulSet>(json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "w"},
                "spec": {
                    "replicas": 5, "serviceName": "w", "podManagementPolicy": "Parallel", "ordinals": {"start": start},
                    "selector": {"matchLabels": {"app": "w"}},
                    "template": {"metadata": {"labels": {"app": "w"}}, "spec": {"nodeName": "without-kubelet", "containers": [{"name": "worker", "image": "none"}]}},
                },
            }))
            .await;
        let pods = pods_of(&stage.namespace, "app=w", 5).await;
        let (began, mut beats) = (now(), Vec::new());
        for pod in &pods {
            runs(&stage.namespace, pod, &format!("c-{pod}"), began - 60).await;
            beats.push(stage.pools.beating(pod, began - 59, pod, "mail").await);
        }
        let busy = format!("w-{}", start + 2);
        stage.pools.takes(&busy, "mail", &["a"]).await;
        let operator = stage.operator().await;
        let mut spec = scaled(&stage, json!({"scaleDownStabilizationSeconds": 0}));
        spec["workers"]["scaleTargetRef"] = json!({"kind": "StatefulSet", "name": "w"});
        stage.namespace.job_queue("q", spec).await.unwrap();
        let sets = stage.namespace.api::<StatefulSet>();
        let replicas = async || sets.get("w").await.unwrap().spec.replicas.unwrap_or(0);
        wait_for("three replicas", Duration::from_secs(20), || async { (replicas().await == 3).then_some(()) }).await;
        stage.passes(&operator, "q", 3).await;
        assert_eq!(replicas().await, 3, "{busy} works");
        stage.finishes(&busy).await;
        wait_for("none", Duration::from_secs(20), || async { (replicas().await == 0).then_some(()) }).await;
        stage.namespace.delete().await;
    }
}

#[tokio::test]
async fn without_protection_the_number_alone_counts() {
    let stage = Stage::new("unprotected").await;
    let (pods, _beats) = stage.workers(3).await;
    for pod in &pods {
        stage.pools.takes(pod, "mail", &[pod]).await;
    }
    let _operator = stage.operator().await;
    let scaling = json!({"jobsPerReplica": 10, "scaleDownStabilizationSeconds": 0, "protectBusyPods": false});
    stage.namespace.job_queue("q", scaled(&stage, scaling)).await.unwrap();
    stage.until_replicas(1, Duration::from_secs(20)).await;
    for pod in &pods {
        assert_eq!(stage.cost(pod).await, None, "{pod} was marked");
    }
    stage.namespace.delete().await;
}

#[tokio::test]
async fn nothing_is_lowered_during_a_rollout() {
    let stage = Stage::new("rollout").await;
    let (_, _beats) = stage.workers(4).await;
    let roll = async |value: serde_json::Value| {
        let body = json!({"spec": {"template": {"metadata": {"annotations": {"rolled": value}}}}});
        let api = stage.namespace.api::<k8s_openapi::api::apps::v1::Deployment>();
        api.patch("w", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(&body)).await.unwrap();
    };
    roll(json!("1")).await;
    // One more than wanted, and it never comes up: the rollout stands still.
    pods_of(&stage.namespace, "app=w", 5).await;
    let operator = stage.operator().await;
    stage.namespace.job_queue("q", scaled(&stage, json!({"scaleDownStabilizationSeconds": 0}))).await.unwrap();
    stage
        .namespace
        .status("q", "what holds", |s| s.scaling.as_ref().is_some_and(|s| s.limited_by.as_deref() == Some("Rollout")))
        .await;
    stage.passes(&operator, "q", 3).await;
    assert_eq!(stage.replicas().await, 4);
    roll(serde_json::Value::Null).await;
    stage.until_replicas(0, Duration::from_secs(30)).await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn nothing_is_lowered_while_a_deployment_has_yet_to_replace_its_pods() {
    let stage = Stage::new("stopped-rollout").await;
    let (_, _beats) = stage.workers(4).await;
    let api = stage.namespace.api::<k8s_openapi::api::apps::v1::Deployment>();
    let roll = async |paused: bool, value: serde_json::Value| {
        let template = json!({"metadata": {"annotations": {"rolled": value}}});
        let body = json!({"spec": {"paused": paused, "template": template}});
        api.patch("w", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(&body)).await.unwrap();
    };
    // A rollout that somebody has stopped before its first pod: all pods are of one kind, the old one.
    roll(true, json!("1")).await;
    wait_for("no updated pod", Duration::from_secs(20), || async {
        let status = api.get("w").await.ok()?.status?;
        (status.replicas == Some(4) && status.updated_replicas.unwrap_or(0) == 0).then_some(())
    })
    .await;
    let operator = stage.operator().await;
    let scaling = json!({"jobsPerReplica": 1, "scaleDownStabilizationSeconds": 0});
    stage.namespace.job_queue("q", scaled(&stage, scaling)).await.unwrap();
    stage
        .namespace
        .status("q", "what holds", |s| s.scaling.as_ref().is_some_and(|s| s.limited_by.as_deref() == Some("Rollout")))
        .await;
    stage.passes(&operator, "q", 4).await;
    assert_eq!(stage.replicas().await, 4);
    // Up is no danger.
    stage.push("mail", 6).await;
    stage.until_replicas(6, Duration::from_secs(20)).await;
    run::<(), _>(&mut stage.pools.redis.clone(), ["DEL", "work:jobs:mail"]).await;
    roll(false, serde_json::Value::Null).await;
    stage.until_replicas(0, Duration::from_secs(40)).await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn a_worker_whose_clock_is_behind_its_kubelets_counts_and_is_protected() {
    let stage = Stage::new("skewed").await;
    deployment(&stage.namespace, "w", 3).await;
    let pods = pods_of(&stage.namespace, "app=w", 3).await;
    let (start, mut beats) = (now(), Vec::new());
    for pod in &pods {
        runs(&stage.namespace, pod, &format!("c-{pod}"), start - 60).await;
        // So it can't be bound to its container.
        beats.push(stage.pools.beating(pod, start - 61, pod, "mail").await);
    }
    stage.pools.takes(&pods[1], "mail", &["a"]).await;
    let operator = stage.operator().await;
    stage.namespace.job_queue("q", scaled(&stage, json!({"scaleDownStabilizationSeconds": 0}))).await.unwrap();
    stage.until_replicas(1, Duration::from_secs(30)).await;
    let left =
        wait_or(Duration::from_secs(20), || async { Some(stage.live().await).filter(|live| live.len() == 1) }).await;
    assert_eq!(left, Some(vec![pods[1].clone()]));
    stage.passes(&operator, "q", 3).await;
    assert_eq!(stage.replicas().await, 1);
    stage.namespace.delete().await;
}
