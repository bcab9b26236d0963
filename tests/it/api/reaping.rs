//! Dead workers, as the API server tells of them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Stage, Worker};
use crate::support::kube::{condition, wait_for};
use crate::support::pods::{deployment_on_a_node, now, pods_of, report, runs, terminated, vanish};

fn adopted(stage: &Stage) -> Value {
    stage.spec(json!({"workers": {"scaleTargetRef": {"kind": "Deployment", "name": "w"}}, "jobs": [{"name": "mail", "maxConcurrency": 9}]}))
}

async fn bound(stage: &Stage, pool: &str) {
    wait_for("a binding", Duration::from_secs(20), || async { stage.pools.is_bound(pool).await.then_some(()) }).await;
}

async fn reaped(stage: &Stage, pool: &str, bound: Duration) {
    wait_for("a reap", bound, || async { (!stage.pools.knows(pool).await).then_some(()) }).await;
}

#[tokio::test]
async fn c05_a_container_that_restarts_in_its_pod_frees_its_pool_and_no_other() {
    let stage = Stage::new("restart").await;
    let Worker { pod, start, beats } = stage.worker(&["a1", "a2"]).await;
    let _operator = stage.operator().await;
    stage.namespace.job_queue("q", adopted(&stage)).await.unwrap();
    bound(&stage, "A").await;
    drop(beats);
    report(
        &stage.namespace,
        &pod,
        "Running",
        json!({
            "containerID": "containerd://c2", "restartCount": 1,
            "state": {"running": {"startedAt": crate::support::pods::rfc3339(now())}},
            "lastState": terminated("c1", start - 60, now(), "OOMKilled", 137),
        }),
    )
    .await;
    let _new = stage.pools.beating("B", now(), &pod, "mail").await;
    stage.pools.takes("B", "mail", &["b1"]).await;
    reaped(&stage, "A", Duration::from_secs(15)).await;
    assert_eq!(stage.pools.waiting("mail").await, ["a1", "a2"], "in front, in the order taken");
    assert_eq!(stage.pools.lock("mail").await, 1);
    assert_eq!(stage.pools.lock_info("mail").await, [("B".to_owned(), 1)].into());
    let status = stage.namespace.status("q", "the last reap", |s| s.last_reap.is_some()).await;
    let reap = status.last_reap.unwrap();
    assert_eq!(
        (reap.pod.as_deref(), reap.proof.as_str(), reap.jobs, reap.locks),
        (Some(pod.as_str()), "ContainerEnded", 2, 2)
    );
    stage.namespace.delete().await;
}

#[tokio::test]
async fn c15_nothing_is_reaped_while_a_pod_is_in_its_grace_period() {
    let stage = Stage::new("grace").await;
    deployment_on_a_node(&stage.namespace, "w", 1).await;
    let pod = pods_of(&stage.namespace, "app=w", 1).await.remove(0);
    let start = now();
    runs(&stage.namespace, &pod, "c1", start - 60).await;
    let beats = stage.pools.beating("A", start - 59, &pod, "mail").await;
    stage.pools.takes("A", "mail", &["a1"]).await;
    let _operator = stage.operator().await;
    stage.namespace.job_queue("q", adopted(&stage)).await.unwrap();
    bound(&stage, "A").await;
    let pods = stage.namespace.api::<k8s_openapi::api::core::v1::Pod>();
    pods.delete(&pod, &kube::api::DeleteParams::default()).await.unwrap();
    drop(beats);
    let silent = Instant::now();
    stage
        .namespace
        .status("q", "the silence noticed", |s| condition(s, "WorkersResponsive") == ("False", "SilentWorkers"))
        .await;
    assert!(silent.elapsed() > Duration::from_secs(10));
    assert!(stage.pools.knows("A").await, "asked to end is not ended");
    assert_eq!(stage.pools.lock("mail").await, 1);
    report(
        &stage.namespace,
        &pod,
        "Running",
        json!({"containerID": "containerd://c1", "state": terminated("c1", start - 60, now(), "Completed", 0)}),
    )
    .await;
    reaped(&stage, "A", Duration::from_secs(5)).await;
    assert_eq!(stage.pools.waiting("mail").await, ["a1"]);
    vanish(&stage.namespace, &pod).await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn a_pod_whose_object_vanished_is_reaped_by_silence_alone() {
    let stage = Stage::new("vanished").await;
    let Worker { pod, beats, .. } = stage.worker(&["a1"]).await;
    let _operator = stage.operator().await;
    stage.namespace.job_queue("q", adopted(&stage)).await.unwrap();
    bound(&stage, "A").await;
    vanish(&stage.namespace, &pod).await;
    stage.namespace.status("q", "an open fate", |s| s.pools.undecided == 1 || s.pools.living == 1).await;
    assert!(stage.pools.knows("A").await, "it beats, so it may well run");
    let silent = Instant::now();
    drop(beats);
    reaped(&stage, "A", Duration::from_secs(25)).await;
    assert!(silent.elapsed() >= Duration::from_secs(11), "after {:?}", silent.elapsed());
    assert_eq!(stage.pools.waiting("mail").await, ["a1"]);
    stage.namespace.delete().await;
}

#[tokio::test]
async fn c01_a_list_that_nobody_remembers_is_given_back_and_a_late_heartbeat_saves_its_pool() {
    let stage = Stage::new("unknown").await;
    stage.pools.takes("D", "replicate", &["r1", "r2"]).await;
    stage.pools.takes("L", "mail", &["m1"]).await;
    let _operator = stage.operator().await;
    stage.namespace.job_queue("q", stage.spec(json!({}))).await.unwrap();
    stage.namespace.status("q", "a look", |s| s.running == 3).await;
    let _late = stage.pools.beating("L", now(), "laptop", "mail").await;
    wait_for("the lists of D to be given back", Duration::from_secs(40), || async {
        (stage.pools.waiting("replicate").await == ["r1", "r2"]).then_some(())
    })
    .await;
    assert_eq!(stage.pools.lock("replicate").await, 0);
    assert!(stage.pools.lock_info("replicate").await.is_empty());
    assert_eq!(stage.pools.lock("mail").await, 1, "L beats: it had fetched before its first beat");
    assert!(stage.pools.waiting("mail").await.is_empty());
    stage.namespace.delete().await;
}

#[tokio::test]
async fn a_worker_that_died_while_no_operator_ran_is_reaped_at_its_return() {
    let stage = Stage::new("return").await;
    let Worker { pod, start, beats } = stage.worker(&["a1"]).await;
    let operator = stage.operator().await;
    stage.namespace.job_queue("q", adopted(&stage)).await.unwrap();
    bound(&stage, "A").await;
    operator.kill();
    drop(beats);
    report(
        &stage.namespace,
        &pod,
        "Running",
        json!({"containerID": "containerd://c1", "state": terminated("c1", start - 60, now(), "Error", 137)}),
    )
    .await;
    let _operator = stage.operator().await;
    reaped(&stage, "A", Duration::from_secs(5)).await;
    let status = stage.namespace.status("q", "the reap", |s| s.last_reap.is_some()).await;
    assert_eq!(status.last_reap.unwrap().proof, "ContainerEnded", "the binding in Redis tells, and not silence");
    stage.namespace.delete().await;
}

#[tokio::test]
async fn observing_decides_and_tells_and_changes_nothing() {
    let stage = Stage::new("observe").await;
    let Worker { pod, start, beats } = stage.worker(&["a1"]).await;
    let _operator = stage.operator().await;
    let mut spec = adopted(&stage);
    spec["reaping"] = json!({"mode": "Observe"});
    stage.namespace.job_queue("q", spec).await.unwrap();
    bound(&stage, "A").await;
    drop(beats);
    report(
        &stage.namespace,
        &pod,
        "Running",
        json!({"containerID": "containerd://c1", "state": terminated("c1", start - 60, now(), "Error", 137)}),
    )
    .await;
    stage.namespace.status("q", "a dead pool", |s| s.pools.dead == 1).await;
    let events = stage.namespace.api::<k8s_openapi::api::events::v1::Event>();
    wait_for("the Event", Duration::from_secs(20), || async {
        let all = events.list(&kube::api::ListParams::default()).await.ok()?;
        all.iter().any(|event| event.reason.as_deref() == Some("WouldReap")).then_some(())
    })
    .await;
    assert!(stage.pools.knows("A").await);
    assert_eq!(stage.pools.lock("mail").await, 1);
    stage.namespace.delete().await;
}
