//! Replicas of the operator are killed while workers die.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::Stage;
use super::deaths::reported_end;
use crate::support::cluster::{
    OPERATOR_NAMESPACE, operator_pods, operators, operators_ready, process_of_pod, running_container, signal,
};
use crate::support::kube::wait_for;
use crate::support::redis::run;
use crate::support::workers::Workers;

/// A worker that runs two jobs and that poolkeeper knows; nobody takes jobs from now on.
async fn busy_worker(stage: &Stage) -> (Pod, Vec<String>) {
    let workers = Workers { concurrency: 2, ..Workers::default() };
    stage.namespace.job_queue("q", stage.spec(json!({"workers": workers.target()}))).await.unwrap();
    let jobs = stage.enqueue("mail", 2, &json!({"ms": 12000}));
    workers.apply(&stage.namespace).await;
    stage.pool_with("mail", 2).await;
    stage.pools.set("jobs:mail:paused", "by the test").await;
    (stage.wait_running(workers.name, 1).await.remove(0), jobs)
}

async fn free_locks(stage: &Stage, bound: Duration) -> Instant {
    wait_for("free locks", bound, || async { (stage.pools.lock("mail").await == 0).then(Instant::now) }).await
}

async fn run_again(stage: Stage, jobs: Vec<String>) {
    assert_eq!(stage.pools.waiting("mail").await, jobs, "in the order taken");
    run::<(), _>(&mut stage.redis.clone(), ["DEL", "work:jobs:mail:paused"]).await;
    stage.all_end(&jobs, Duration::from_secs(40)).await;
    assert!(jobs.iter().all(|id| stage.journal.runs(id) == (2, 1)), "they run again, once");
    stage.namespace.status("q", "the reap told", |s| s.last_reap.as_ref().is_some_and(|reap| reap.jobs == 2)).await;
    stage.end().await;
}

#[tokio::test]
async fn a_worker_that_dies_while_all_replicas_are_dead_is_reaped_right_after_their_return() {
    let stage = Stage::new("return").await;
    let (pod, jobs) = busy_worker(&stage).await;
    let replicas = operators_ready().await;
    let pids: Vec<u32> = replicas.iter().map(process_of_pod).collect();
    let worker = process_of_pod(&pod);
    for pid in pids.into_iter().chain([worker]) {
        signal(pid, "KILL");
    }
    reported_end(&stage, &pod).await;
    let before: Vec<String> = replicas.iter().filter_map(running_container).collect();
    let api = operator_pods(&stage.namespace.client);
    let returned = wait_for("a replica that runs again", Duration::from_secs(40), || async {
        let now = api.list(&operators()).await.ok()?;
        let new = now.iter().filter_map(running_container).any(|id| !before.contains(&id));
        new.then(Instant::now)
    })
    .await;
    let free = free_locks(&stage, Duration::from_secs(20)).await;
    let took = free.saturating_duration_since(returned);
    println!("locks were free {took:?} after a replica was reported running again");
    assert!(took < Duration::from_secs(6), "right after the return: {took:?}");
    run_again(stage, jobs).await;
    operators_ready().await;
}

#[tokio::test]
async fn with_the_leading_replica_dead_the_other_one_reaps_without_delay() {
    let stage = Stage::new("alone").await;
    let (pod, jobs) = busy_worker(&stage).await;
    let leases = Api::<Lease>::namespaced(stage.namespace.client.clone(), OPERATOR_NAMESPACE);
    let leader = wait_for("a leader among those that are ready", Duration::from_secs(40), || async {
        let holder = leases.get_opt("poolkeeper").await.ok()??.spec?.holder_identity?;
        operators_ready().await.into_iter().find(|replica| replica.name_any() == holder)
    })
    .await;
    let worker = process_of_pod(&pod);
    signal(process_of_pod(&leader), "KILL");
    signal(worker, "KILL");
    let reported = reported_end(&stage, &pod).await;
    let took = free_locks(&stage, Duration::from_secs(10)).await.saturating_duration_since(reported);
    println!("locks were free {took:?} after the report");
    assert!(took < Duration::from_secs(1), "no wait for a Lease: {took:?}");
    run_again(stage, jobs).await;
    operators_ready().await;
}
