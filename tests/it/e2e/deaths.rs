//! A worker's process is killed in the middle of its jobs.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

use super::Stage;
use crate::support::cluster::{Frozen, operators_ready, process_of_pod, running_container, signal};
use crate::support::kube::{condition, wait_for};
use crate::support::redis::run;
use crate::support::workers::Workers;

/// Waits until the API server tells that the container which ran in this pod has ended, as it stands or by another one.
pub async fn reported_end(stage: &Stage, pod: &Pod) -> Instant {
    let before = running_container(pod).expect("a container that ran");
    wait_for("the kubelet's report", Duration::from_secs(20), || async {
        let now = stage.namespace.api::<Pod>().get(&pod.name_any()).await.ok()?;
        (running_container(&now).as_deref() != Some(&before)).then(Instant::now)
    })
    .await
}

#[tokio::test]
async fn a_killed_workers_jobs_are_in_front_of_the_queue_byte_for_byte_in_the_order_taken() {
    let stage = Stage::new("killed").await;
    let workers = Workers { concurrency: 3, ..Workers::default() };
    let paused =
        |paused: bool| stage.spec(json!({"jobs": [{"name": "mail", "paused": paused}], "workers": workers.target()}));
    stage.namespace.job_queue("q", paused(false)).await.unwrap();
    stage.namespace.status("q", "caps held", |s| condition(s, "ConcurrencyApplied").0 == "True").await;
    // What an encoder on the way would damage, and what would tell the jobs' order.
    let args = |n: u32| json!({"ms": 9000, "n": n, "id": 393_087_288_629_462_191_u64, "tags": [], "who": "Zoë <a&b>"});
    let killed: Vec<String> = (1..=3).flat_map(|n| stage.enqueue("mail", 1, &args(n))).collect();
    let others = stage.enqueue("mail", 10, &json!({"ms": 20}));
    workers.apply(&stage.namespace).await;
    let pool = stage.pool_with("mail", 3).await;
    // Nobody takes them again before we have looked.
    stage.namespace.job_queue("q", paused(true)).await.unwrap();
    wait_for("the pause", Duration::from_secs(10), || async {
        let keys: i64 = run(&mut stage.redis.clone(), ["EXISTS", "work:jobs:mail:paused"]).await;
        (keys == 1).then_some(())
    })
    .await;
    let pod = stage.wait_running(workers.name, 1).await.remove(0);
    let taken = stage.list(&format!("jobs:mail:{pool}:inprogress")).await;
    let waiting = stage.list("jobs:mail").await;
    assert_eq!((taken.len(), waiting.len()), (3, 10));

    signal(process_of_pod(&pod), "KILL");
    let reported = reported_end(&stage, &pod).await;
    wait_for("free locks", Duration::from_secs(10), || async { (stage.pools.lock("mail").await == 0).then_some(()) })
        .await;
    println!("locks were free {:?} after the report, as far as a look every 25 ms can tell", reported.elapsed());
    assert!(reported.elapsed() < Duration::from_secs(1), "at once: {:?}", reported.elapsed());
    // The right end runs next, and in-progress lists grow to the left.
    assert_eq!(stage.list("jobs:mail").await, [waiting, taken].concat());
    wait_for("nothing left of the pool", Duration::from_secs(5), || async {
        let forgotten = !stage.pools.knows(&pool).await && !stage.pools.lock_info("mail").await.contains_key(&pool);
        forgotten.then_some(())
    })
    .await;

    stage.namespace.job_queue("q", paused(false)).await.unwrap();
    stage.all_end(&[killed.clone(), others.clone()].concat(), Duration::from_secs(60)).await;
    assert!(killed.iter().all(|id| stage.journal.runs(id) == (2, 1)), "the killed ones run again");
    assert!(others.iter().all(|id| stage.journal.runs(id) == (1, 1)), "the others once");
    let status = stage
        .namespace
        .status("q", "the reap told", |s| {
            s.totals.jobs_requeued == 3 && s.last_reap.as_ref().is_some_and(|r| r.jobs == 3)
        })
        .await;
    let reap = status.last_reap.expect("a reap");
    assert_eq!((reap.pod, reap.pools, reap.locks), (Some(pod.name_any()), 1, 3));
    assert_eq!(status.totals.pools_reaped, 1, "the restarted container's pool is untouched");
    stage.end().await;
}

#[tokio::test]
async fn c05_the_pool_of_the_restarted_container_keeps_its_job_when_the_one_before_it_is_reaped() {
    let stage = Stage::new("restarted").await;
    let workers = Workers { concurrency: 2, ..Workers::default() };
    stage.namespace.job_queue("q", stage.spec(json!({"workers": workers.target()}))).await.unwrap();
    let jobs = stage.enqueue("mail", 3, &json!({"ms": 10000}));
    workers.apply(&stage.namespace).await;
    let before = stage.pool_with("mail", 2).await;
    let pod = stage.wait_running(workers.name, 1).await.remove(0);
    // Nobody reaps before the new pool has a job of the same type, on the same host, with the same pid.
    let frozen = Frozen::new(operators_ready().await.iter().map(process_of_pod).collect());
    signal(process_of_pod(&pod), "KILL");
    let after = wait_for("a job in the new pool", Duration::from_secs(20), || async {
        stage.in_progress("mail").await.into_iter().find_map(|(pool, _)| (pool != before).then_some(pool))
    })
    .await;
    stage.pools.set("jobs:mail:paused", "by the test").await;
    assert_eq!(stage.pools.lock("mail").await, 3);
    drop(frozen);
    wait_for("the old pool's locks to be free", Duration::from_secs(15), || async {
        (stage.pools.lock("mail").await == 1).then_some(())
    })
    .await;
    assert_eq!(stage.pools.waiting("mail").await, jobs[..2], "in the order taken");
    assert_eq!(stage.in_progress("mail").await, [(after.clone(), 1)]);
    assert_eq!(stage.pools.lock_info("mail").await.get(&after), Some(&1));
    assert!(stage.pools.knows(&after).await);
    run::<(), _>(&mut stage.redis.clone(), ["DEL", "work:jobs:mail:paused"]).await;
    stage.all_end(&jobs, Duration::from_secs(60)).await;
    assert_eq!(stage.journal.runs(&jobs[2]), (1, 1), "the new pool's job runs once");
    assert!(jobs[..2].iter().all(|id| stage.journal.runs(id) == (2, 1)), "the killed ones run again");
    stage.end().await;
}
