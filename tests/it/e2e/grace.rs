//! A pod that is asked to go works on: what ends in its grace period is done, and only what is cut off runs again.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use super::Stage;
use crate::support::cluster::running_container;
use crate::support::kube::{condition, wait_for};
use crate::support::redis::line;
use crate::support::workers::{Workers, harmless};

#[tokio::test]
async fn c15_a_deleted_pods_job_that_ends_well_runs_once_and_one_that_is_cut_off_runs_again() {
    let stage = Stage::new("grace").await;
    let workers = Workers { concurrency: 2, grace_seconds: 7, ..Workers::default() };
    stage.namespace.job_queue("q", stage.spec(json!({"workers": workers.target()}))).await.unwrap();
    // Until these have ended, the pool has beaten again and poolkeeper knows where it lives.
    let before = stage.enqueue("mail", 2, &json!({"ms": 6000}));
    let ends_well = stage.enqueue("mail", 1, &json!({"ms": 4000})).remove(0);
    let cut_off = stage.enqueue("mail", 1, &json!({"ms": 13000})).remove(0);
    workers.apply(&stage.namespace).await;
    let pool = stage.pool_with("mail", 2).await;
    wait_for("both jobs to run", Duration::from_secs(20), || async {
        let run =
            stage.journal.all_ended(&before) && stage.journal.runs(&ends_well).0 + stage.journal.runs(&cut_off).0 == 2;
        run.then_some(())
    })
    .await;
    let pod = stage.wait_running(workers.name, 1).await.remove(0);
    let pods = stage.namespace.api::<Pod>();
    pods.delete(&pod.name_any(), &DeleteParams::default()).await.expect("it is asked to go");

    // As long as its container may run, what it holds is its own.
    wait_for("the pod to end", Duration::from_secs(40), || async {
        let held: i64 = stage.pools.lock_info("mail").await.get(&pool).copied().unwrap_or(0);
        let (runs, of_cut_off) = (stage.journal.runs(&ends_well), stage.journal.runs(&cut_off));
        // Asked after the locks: what runs now ran then.
        let now = pods.get_opt(&pod.name_any()).await.ok()?;
        let lives = now.as_ref().is_some_and(|pod| running_container(pod).is_some());
        if lives {
            assert!(held >= 1, "a living worker's lock was freed");
            assert!(runs.0 == 1 && of_cut_off.0 == 1, "a job of a living worker runs again");
        }
        now.is_none().then_some(())
    })
    .await;
    assert_eq!(stage.journal.runs(&ends_well), (1, 1), "the grace period was enough for the first job");
    assert_eq!(stage.journal.runs(&cut_off).1, 0, "and not for the second");

    stage.all_end(std::slice::from_ref(&cut_off), Duration::from_secs(40)).await;
    assert_eq!(stage.journal.runs(&cut_off), (2, 1));
    assert_eq!(stage.journal.runs(&ends_well), (1, 1), "what ended well never runs again");
    let status = stage.namespace.status("q", "one job given back", |s| s.totals.jobs_requeued == 1).await;
    assert_eq!(status.last_reap.and_then(|reap| reap.pod), Some(pod.name_any()));
    stage.end().await;
}

async fn scale(stage: &Stage, name: &str, replicas: i32) {
    let patch = json!({"spec": {"replicas": replicas}});
    let deployments = stage.namespace.api::<Deployment>();
    deployments.patch_scale(name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("a new scale");
}

#[tokio::test]
async fn c59_a_pod_that_is_deleted_in_its_init_container_leaves_no_trouble() {
    let stage = Stage::new("init").await;
    let endless = json!({
        "name": "wait", "image": "localhost/redis:dev", "imagePullPolicy": "IfNotPresent",
        "command": ["/usr/local/bin/redis-cli", "-h", "redis", "BLPOP", "never", "0"],
        "securityContext": harmless(),
    });
    let workers = Workers { init: Some(endless), grace_seconds: 1, ..Workers::default() };
    stage.namespace.job_queue("q", stage.spec(json!({"workers": workers.target()}))).await.unwrap();
    workers.apply(&stage.namespace).await;
    let pods = stage.namespace.api::<Pod>();
    let in_init = |pod: &Pod| {
        let status = pod.status.as_ref().and_then(|status| status.init_container_statuses.as_ref()?.first());
        status.is_some_and(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()))
    };
    wait_for("a pod in Init", Duration::from_secs(40), || async {
        pods.list(&ListParams::default().labels("app=w")).await.ok()?.iter().any(in_init).then_some(())
    })
    .await;
    stage.namespace.status("q", "a pod that has begun", |s| s.replicas == 1).await;
    scale(&stage, workers.name, 0).await;
    let status = stage.namespace.status("q", "no pod any more", |s| s.replicas == 0).await;
    assert_eq!((status.totals.pools_reaped, &status.last_reap), (0, &None));
    assert_eq!(condition(&status, "Ready").0, "True", "{:?}", status.conditions);
    stage.end().await;
}

#[tokio::test]
async fn c59_scaled_from_none_to_ten_and_back_at_once_nothing_is_left_and_no_job_lost() {
    let stage = Stage::new("churn").await;
    let workers = Workers { replicas: 0, concurrency: 3, grace_seconds: 2, ..Workers::default() };
    stage.namespace.job_queue("q", stage.spec(json!({"workers": workers.target()}))).await.unwrap();
    workers.apply(&stage.namespace).await;
    // None can end in time.
    let jobs = stage.enqueue("mail", 40, &json!({"ms": 60000}));
    scale(&stage, workers.name, 10).await;
    // Some have begun by then, others come up while they are already asked to go.
    wait_for("jobs in two pools", Duration::from_secs(40), || async {
        (stage.in_progress("mail").await.len() >= 2).then_some(())
    })
    .await;
    scale(&stage, workers.name, 0).await;
    wait_for("all pods to be gone", Duration::from_secs(60), || async {
        let pods = stage.namespace.api::<Pod>().list(&ListParams::default().labels("app=w")).await.ok()?;
        pods.items.is_empty().then_some(())
    })
    .await;
    wait_for("nothing to be left", Duration::from_secs(20), || async {
        let in_progress = stage.in_progress("mail").await;
        let known: i64 = line(&mut stage.redis.clone(), "SCARD work:worker_pools").await;
        let held: i64 = stage.pools.lock_info("mail").await.values().map(|count| count.abs()).sum();
        let free = in_progress.is_empty() && known == 0 && held == 0 && stage.pools.lock("mail").await == 0;
        free.then_some(())
    })
    .await;
    let (cut_off, mut waiting) = (stage.journal.count("start").len(), stage.pools.waiting("mail").await);
    println!("{cut_off} jobs had been started by pods that were scaled away");
    assert!(cut_off >= 2, "some were cut off");
    waiting.sort_unstable();
    let mut jobs = jobs;
    jobs.sort_unstable();
    assert_eq!(waiting, jobs, "each waits, once");
    stage.end().await;
}
