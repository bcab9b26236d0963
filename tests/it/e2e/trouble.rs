//! Redis stands still, or the operator can't reach it: nobody is taken for dead because of it, and all recovers by itself.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use poolkeeper::api::status::JobQueueStatus;
use serde_json::json;

use super::Stage;
use crate::support::cluster::{Cut, Frozen, images, operators_ready, process_of_pod};
use crate::support::kube::{condition, wait_for};
use crate::support::workers::Workers;

/// Silence that counts as death, of pods of unknown fate and of outsiders.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long each job takes.
const JOB: Duration = Duration::from_secs(40);

/// A worker on this machine, which is no pod: nothing but its beats tells that it lives. Killed when it is dropped.
struct Outsider(Child);

impl Outsider {
    fn start(stage: &Stage) -> Self {
        let worker = Command::new(images().join("bin/gocraft-worker"))
            .envs([("REDIS_URL", stage.url.as_str()), ("WORK_NAMESPACE", "work"), ("WORK_JOBS", "away:0")])
            .env("WORK_CONCURRENCY", "1")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(worker.expect("hack/images/build makes it"))
    }
}

impl Drop for Outsider {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two jobs in a pod and one at an outsider, none of which ends before the trouble does.
async fn busy_workers(stage: &Stage) -> (Outsider, Vec<String>) {
    let workers = Workers { concurrency: 2, ..Workers::default() };
    let timeouts = json!({"heartbeatTimeoutSeconds": TIMEOUT.as_secs(), "outsiderTimeoutSeconds": TIMEOUT.as_secs()});
    let spec =
        json!({"reaping": timeouts, "jobs": [{"name": "mail", "maxConcurrency": 5}], "workers": workers.target()});
    stage.namespace.job_queue("q", stage.spec(spec)).await.unwrap();
    let jobs = stage.enqueue("mail", 2, &json!({"ms": JOB.as_secs() * 1000}));
    stage.enqueue("away", 1, &json!({"ms": JOB.as_secs() * 1000}));
    let outsider = Outsider::start(stage);
    workers.apply(&stage.namespace).await;
    let pod = stage.pool_with("mail", 2).await;
    wait_for("a job of the outsider", Duration::from_secs(20), || async {
        (stage.pools.lock("away").await == 1).then_some(())
    })
    .await;
    stage.namespace.status("q", "two living pools", |s| s.pools.living == 2).await;
    // gocraft/work's own reaper runs 10 s after the pod's start, and takes who had not beaten for 10 s by then, which is
    // no verdict of ours: the outsider has to have beaten a little after that start.
    let started_at = stage.pools.second_of(&pod, "started_at").await;
    wait_for("a beat that the library's own reaper takes for life", Duration::from_secs(20), || async {
        let mut beats = Vec::new();
        for pool in stage.pools.ids().await {
            beats.push(stage.pools.second_of(&pool, "heartbeat_at").await);
        }
        beats.iter().all(|beat| *beat >= started_at + 3).then_some(())
    })
    .await;
    (outsider, jobs)
}

/// The condition says why, and goes on saying so for longer than silence would take to count as death.
async fn told_throughout(stage: &Stage, reasons: &[&str]) {
    let began = Instant::now();
    let unreachable = |s: &JobQueueStatus| {
        let (status, reason) = condition(s, "RedisReachable");
        status == "False" && reasons.contains(&reason)
    };
    let status = stage.namespace.status("q", "an unreachable Redis", unreachable).await;
    let said = status.conditions.iter().find(|c| c.type_ == "RedisReachable").expect("the condition");
    println!("after {:?}: {}: {}", began.elapsed(), said.reason, said.message);
    let end = began + TIMEOUT + Duration::from_secs(3);
    wait_for("the trouble's time to be over", Duration::from_secs(30), || async {
        stage.namespace.status("q", "still unreachable", unreachable).await;
        (Instant::now() > end).then_some(())
    })
    .await;
}

/// All is well again, and nobody was taken for dead: not even who had not beaten by the first looks.
async fn recovered(stage: Stage, jobs: Vec<String>, silent: Frozen) {
    stage.namespace.status("q", "a Redis that answers", |s| condition(s, "RedisReachable").0 == "True").await;
    let looks = Instant::now() + Duration::from_secs(4);
    wait_for("some looks", TIMEOUT, || async {
        assert_eq!(stage.pools.lock("away").await, 1, "silence was counted while nobody looked");
        (Instant::now() > looks).then_some(())
    })
    .await;
    drop(silent);
    stage.namespace.status("q", "caps held", |s| condition(s, "ConcurrencyApplied").0 == "True").await;
    stage.all_end(&jobs, JOB + Duration::from_secs(20)).await;
    wait_for("all locks to be free", Duration::from_secs(30), || async {
        (stage.pools.lock("mail").await + stage.pools.lock("away").await == 0).then_some(())
    })
    .await;
    assert!(jobs.iter().all(|id| stage.journal.runs(id) == (1, 1)), "each ran once");
    let status = stage
        .namespace
        .status("q", "nothing to run", |s| s.running == 0 && s.waiting == 0 && condition(s, "Ready").0 == "True")
        .await;
    assert_eq!((status.totals.pools_reaped, status.totals.jobs_requeued, status.pools.living), (0, 0, 2));
    stage.end().await;
}

async fn frozen_redis() {
    let stage = Stage::new("frozen").await;
    let (outsider, jobs) = busy_workers(&stage).await;
    let silent = Frozen::new(vec![outsider.0.id()]);
    let frozen = Frozen::new(vec![process_of_pod(&stage.redis_pod().await)]);
    told_throughout(&stage, &["NoAnswer"]).await;
    drop(frozen);
    recovered(stage, jobs, silent).await;
}

async fn cut_off_operator() {
    let stage = Stage::new("cut").await;
    let (outsider, jobs) = busy_workers(&stage).await;
    let redis = address(&stage.redis_pod().await);
    let silent = Frozen::new(vec![outsider.0.id()]);
    let cuts: Vec<Cut> = operators_ready().await.iter().map(|pod| Cut::new(&address(pod), &redis)).collect();
    told_throughout(&stage, &["NoAnswer", "Disconnected"]).await;
    drop(cuts);
    recovered(stage, jobs, silent).await;
}

fn address(pod: &Pod) -> String {
    pod.status.as_ref().and_then(|status| status.pod_ip.clone()).expect("an address")
}

#[tokio::test]
async fn while_redis_stands_still_or_is_out_of_reach_nobody_is_taken_for_dead_and_all_recovers() {
    // At the same time, since most of it is waiting.
    tokio::join!(frozen_redis(), cut_off_operator());
}
