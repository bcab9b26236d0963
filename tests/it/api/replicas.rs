//! Several replicas: each does everything in Redis, one writes to the API server.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use serde_json::json;

use super::{Stage, Worker};
use crate::support::kube::{condition, wait_for};
use crate::support::operator::Operator;
use crate::support::pods::{now, report, terminated};

async fn leader(stage: &Stage) -> Option<String> {
    stage.namespace.api::<Lease>().get_opt("poolkeeper").await.ok()??.spec?.holder_identity
}

#[tokio::test]
async fn with_the_leader_killed_the_other_reaps_without_delay_and_then_tells_of_it() {
    let stage = Stage::new("replicas").await;
    let Worker { pod, start, beats: _beats } = stage.worker(&["a1", "a2"]).await;
    let one = Operator::start(&stage.namespace.name, &["--identity", "one"]).await;
    wait_for("a leader", Duration::from_secs(20), || async {
        (leader(&stage).await.as_deref() == Some("one")).then_some(())
    })
    .await;
    let _two = Operator::start(&stage.namespace.name, &["--identity", "two"]).await;
    let target = json!({"workers": {"scaleTargetRef": {"kind": "Deployment", "name": "w"}}});
    stage.namespace.job_queue("q", stage.spec(target)).await.unwrap();
    stage.namespace.status("q", "a living pool", |s| s.pools.living == 1).await;
    wait_for("a binding", Duration::from_secs(20), || async { stage.pools.is_bound("A").await.then_some(()) }).await;
    one.kill();
    let began = Instant::now();
    report(
        &stage.namespace,
        &pod,
        "Running",
        json!({"containerID": "containerd://c1", "state": terminated("c1", start - 60, now(), "Error", 137)}),
    )
    .await;
    wait_for("free locks", Duration::from_secs(5), || async { (stage.pools.lock("mail").await == 0).then_some(()) })
        .await;
    assert!(began.elapsed() < Duration::from_secs(8), "no wait for a Lease: {:?}", began.elapsed());
    assert_eq!(stage.pools.waiting("mail").await, ["a1", "a2"]);
    let status = stage
        .namespace
        .status("q", "told by the new leader", |s| s.last_reap.as_ref().is_some_and(|reap| reap.jobs == 2))
        .await;
    assert_eq!(status.totals.jobs_requeued, 2);
    assert_eq!(leader(&stage).await.as_deref(), Some("two"));
    stage.namespace.delete().await;
}

#[tokio::test]
async fn a_stop_is_clean_and_gives_the_lease_back() {
    let stage = Stage::new("stop").await;
    let one = Operator::start(&stage.namespace.name, &["--identity", "one"]).await;
    wait_for("a leader", Duration::from_secs(20), || async {
        (leader(&stage).await.as_deref() == Some("one")).then_some(())
    })
    .await;
    stage.namespace.job_queue("q", stage.spec(json!({"jobs": [{"name": "mail", "maxConcurrency": 3}]}))).await.unwrap();
    stage.namespace.status("q", "ready", |s| condition(s, "Ready").0 == "True").await;
    let (took, well) = one.terminate();
    assert!(well && took < Duration::from_secs(5), "ended well: {well}, after {took:?}");
    assert_ne!(leader(&stage).await.as_deref(), Some("one"), "the Lease is free for the next");
    stage.namespace.delete().await;
}

#[tokio::test]
async fn observe_only_changes_nothing_anywhere() {
    let stage = Stage::new("watching").await;
    stage.pools.set("jobs:mail:max_concurrency", "9").await;
    let operator = Operator::start(&stage.namespace.name, &["--observe-only"]).await;
    stage.namespace.job_queue("q", stage.spec(json!({"jobs": [{"name": "mail", "maxConcurrency": 3}]}))).await.unwrap();
    let waiting =
        format!("poolkeeper_max_concurrency{{namespace=\"{}\",jobqueue=\"q\",job=\"mail\"}}", stage.namespace.name);
    wait_for("its metrics", Duration::from_secs(20), || async {
        (operator.metric(&waiting).await == Some(9.0)).then_some(())
    })
    .await;
    let mut redis = stage.server.connection().await;
    let keys: Vec<String> = crate::support::redis::line(&mut redis, "KEYS *").await;
    assert_eq!(keys, ["work:jobs:mail:max_concurrency"], "no key of ours");
    assert_eq!(stage.pools.cap("mail").await.as_deref(), Some("9"));
    let queue = stage.namespace.api::<poolkeeper::api::job_queue::JobQueue>().get("q").await.unwrap();
    assert!(queue.status.is_none() && leader(&stage).await.is_none());
    stage.namespace.delete().await;
}

#[tokio::test]
async fn a_restart_while_redis_is_away_forgets_nothing_that_the_status_told() {
    let mut stage = Stage::new("memory").await;
    let one = Operator::start(&stage.namespace.name, &["--identity", "one"]).await;
    stage.push("mail", 3).await;
    stage.namespace.job_queue("q", stage.spec(json!({"jobs": [{"name": "mail"}]}))).await.unwrap();
    let before =
        stage.namespace.status("q", "three jobs", |s| s.waiting == 3 && condition(s, "Ready").0 == "True").await;
    let (_, well) = one.terminate();
    assert!(well);
    stage.server.kill();
    let _two = Operator::start(&stage.namespace.name, &["--identity", "two"]).await;
    let after =
        stage.namespace.status("q", "that Redis is away", |s| condition(s, "RedisReachable").0 == "False").await;
    assert_eq!((after.waiting, after.jobs), (3, before.jobs), "what is not known is not zero");
    assert_eq!(after.recorded_through, before.recorded_through);
    stage.namespace.delete().await;
}
