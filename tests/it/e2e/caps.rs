//! Caps hold against real workers that write others when they start.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use poolkeeper::protocol::gocraft_work::Namespace;
use poolkeeper::protocol::gocraft_work::acl::worker_rules;
use serde_json::json;

use super::Stage;
use super::monitor::{CapWatch, Write};
use crate::support::cluster::{Frozen, operators_ready, process_of_pod};
use crate::support::kube::{condition, wait_for};
use crate::support::redis::run;
use crate::support::workers::Workers;

/// How long after a cap was overwritten a start above ours may still come of it: the job had been fetched by then, and its
/// line had to be written on a machine that has other things to do.
const EXCUSED: f64 = 2.0;

fn seconds(time: Timestamp) -> f64 {
    time.as_nanosecond() as f64 / 1e9
}

async fn hold_two(stage: &Stage, workers: &Workers) {
    let spec = json!({"jobs": [{"name": "mail", "maxConcurrency": 2}], "workers": workers.target()});
    stage.namespace.job_queue("q", stage.spec(spec)).await.unwrap();
    stage.namespace.status("q", "caps held", |s| condition(s, "ConcurrencyApplied") == ("True", "Held")).await;
    assert_eq!(stage.pools.cap("mail").await.as_deref(), Some("2"), "there before the first worker");
}

/// Three workers that compile in 4 run many short jobs, and are all replaced meanwhile.
async fn roll_out_under_load(stage: &Stage, workers: &Workers) -> Vec<String> {
    let jobs = stage.enqueue("mail", 200, &json!({"ms": 100}));
    workers.apply(&stage.namespace).await;
    starts(stage, 3).await;
    let restart =
        json!({"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}});
    let deployments = stage.namespace.api::<Deployment>();
    deployments.patch(workers.name, &PatchParams::default(), &Patch::Strategic(&restart)).await.expect("a rollout");
    starts(stage, 6).await;
    stage.all_end(&jobs, Duration::from_secs(60)).await;
    jobs
}

async fn starts(stage: &Stage, count: usize) {
    wait_for(&format!("{count} workers that have started"), Duration::from_secs(60), || async {
        let started = stage.journal.lines().iter().filter(|line| line.event == "process-start").count();
        (started >= count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn c09_a_cap_of_two_is_back_after_each_start_of_a_worker_that_compiles_in_four() {
    let stage = Stage::new("cap").await;
    let workers = Workers { replicas: 3, jobs: "mail:4", ..Workers::default() };
    hold_two(&stage, &workers).await;
    let watch = CapWatch::start(&stage, "mail").await;
    let jobs = roll_out_under_load(&stage, &workers).await;
    assert!(jobs.iter().all(|id| stage.journal.runs(id) == (1, 1)), "each runs once");
    wait_for("the cap to be back", Duration::from_secs(5), || async {
        (stage.pools.cap("mail").await.as_deref() == Some("2")).then_some(())
    })
    .await;
    let writes = watch.end();
    let overwritten: Vec<f64> = writes.iter().filter(|w| !w.by_script && w.value == "4").map(|w| w.at).collect();
    assert!(overwritten.len() >= 6, "each of 6 workers wrote its own cap: {writes:?}");
    let put_back: Vec<&Write> = writes.iter().filter(|w| w.by_script).collect();
    let mut took: Vec<f64> = overwritten
        .iter()
        .map(|at| put_back.iter().find(|back| back.at >= *at).expect("it was put back").at - at)
        .collect();
    took.sort_by(f64::total_cmp);
    println!("overwritten caps were back after {:.1} ms, at most {:.1} ms", took[3] * 1e3, took[took.len() - 1] * 1e3);
    assert!(took[took.len() - 1] < 0.5 && took[took.len() / 2] < 0.05, "back at once: {took:?} s");

    let at_starts = stage.journal.running_at_starts("mail");
    let above: Vec<_> = at_starts.iter().filter(|(_, running)| *running > 2).collect();
    for (time, running) in &above {
        let since = |at: &f64| seconds(*time) - at;
        let excused = overwritten.iter().any(|at| (-0.1..EXCUSED).contains(&since(at)));
        assert!(excused, "{running} ran at {time}, and nobody had overwritten the cap: {overwritten:?}");
    }
    let count = put_back.len() as i64;
    let status = stage.namespace.status("q", "all put-backs counted", |s| s.totals.caps_overwritten == count).await;
    println!("{} of 200 jobs started above the cap; counted were {}", above.len(), status.totals.jobs_above_cap);
    stage.end().await;
}

#[tokio::test]
async fn workers_that_may_not_write_caps_never_run_more_than_two_jobs_at_once() {
    let stage = Stage::new("acl").await;
    let mut rules: Vec<String> = ["ACL", "SETUSER", "worker", "on", ">s3cret"].map(Into::into).into();
    rules.extend(worker_rules(&Namespace::new("work")));
    run::<(), _>(&mut stage.redis.clone(), rules).await;
    let redis_url = "redis://worker:s3cret@redis:6379/0".into();
    let workers = Workers { replicas: 3, jobs: "mail:4", redis_url, ..Workers::default() };
    hold_two(&stage, &workers).await;
    let watch = CapWatch::start(&stage, "mail").await;
    let jobs = roll_out_under_load(&stage, &workers).await;
    assert!(jobs.iter().all(|id| stage.journal.runs(id) == (1, 1)), "each runs once");
    let most = stage.journal.running_at_starts("mail").iter().map(|(_, running)| *running).max();
    assert_eq!(most, Some(2), "two at once, and never more");
    assert!(stage.journal.says("NOPERM"), "the workers did try to write their cap");
    let values: Vec<String> = watch.end().into_iter().filter(|w| w.by_script).map(|w| w.value).collect();
    assert!(values.is_empty(), "nothing had to be put back: {values:?}");
    assert_eq!(stage.pools.cap("mail").await.as_deref(), Some("2"));
    stage.end().await;
}

#[tokio::test]
async fn jobs_that_started_above_the_cap_before_it_was_back_are_counted_and_told() {
    let stage = Stage::new("above").await;
    let workers = Workers { jobs: "mail:4", concurrency: 6, ..Workers::default() };
    hold_two(&stage, &workers).await;
    let jobs = stage.enqueue("mail", 6, &json!({"ms": 5000}));
    // Nobody puts the cap back while the worker starts.
    let frozen = Frozen::new(operators_ready().await.iter().map(process_of_pod).collect());
    workers.apply(&stage.namespace).await;
    wait_for("4 jobs at once", Duration::from_secs(30), || async {
        (stage.pools.lock("mail").await == 4).then_some(())
    })
    .await;
    drop(frozen);
    let status = stage.namespace.status("q", "two jobs above the cap", |s| s.totals.jobs_above_cap == 2).await;
    assert_eq!(status.totals.caps_overwritten, 1);
    wait_for("an Event that tells of it", Duration::from_secs(20), || async {
        let events = stage.namespace.api::<Event>().list(&ListParams::default()).await.ok()?;
        let told = events.iter().any(|event| {
            event.reason.as_deref() == Some("CapOverwritten")
                && event.note.as_ref().is_some_and(|note| note.contains("2 jobs had started above it"))
        });
        told.then_some(())
    })
    .await;
    stage.all_end(&jobs, Duration::from_secs(40)).await;
    let at_starts = stage.journal.running_at_starts("mail");
    assert!(at_starts[4..].iter().all(|(_, running)| *running <= 2), "later ones keep to it: {at_starts:?}");
    stage.end().await;
}
