//! 0 -> N -> 0 on a real kubelet: workers come for the work, go when it is done, and no job is cut off.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::Stage;
use crate::support::kube::wait_for;
use crate::support::workers::Workers;

/// Three seconds of grace: a worker that is asked to go in the middle of a long job is cut off.
fn workers() -> Workers {
    Workers { replicas: 0, concurrency: 2, grace_seconds: 3, ..Workers::default() }
}

impl Stage {
    fn scaled(&self, workers: &Value, scaling: &Value) -> Value {
        self.spec(json!({"workers": workers, "jobs": [{"name": "mail"}], "scaling": scaling}))
    }

    /// Waits until all pods of the workers are gone, and looks at each moment that none of these jobs runs again.
    async fn gone_without_a_cut(&self, app: &str, jobs: &[String], bound: Duration) {
        wait_for("all workers to be gone", bound, || async {
            for job in jobs {
                assert!(self.journal.runs(job).0 <= 1, "{job} was cut off and runs again");
            }
            let pods =
                self.namespace.api::<Pod>().list(&ListParams::default().labels(&format!("app={app}"))).await.ok()?;
            pods.items.is_empty().then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn from_none_to_four_and_back_while_long_jobs_run() {
    let stage = Stage::new("scaling").await;
    let workers = workers();
    workers.apply(&stage.namespace).await;
    let scaling = json!({"maxReplicas": 4, "scaleDownStabilizationSeconds": 2});
    stage.namespace.job_queue("q", stage.scaled(&workers.target(), &scaling)).await.unwrap();
    stage.namespace.status("q", "nothing to do", |s| s.scaling.as_ref().is_some_and(|s| s.desired_replicas == 0)).await;

    let pushed = Instant::now();
    let long = stage.enqueue("mail", 2, &json!({"ms": 25000}));
    let mut all = stage.enqueue("mail", 10, &json!({"ms": 1500}));
    all.extend(long.iter().cloned());
    let deployments = stage.namespace.api::<Deployment>();
    wait_for("the first replica to be asked for", Duration::from_secs(5), || async {
        (deployments.get(workers.name).await.ok()?.spec.replicas? > 0).then_some(())
    })
    .await;
    println!("replicas {:?} after the first job was begun to be enqueued", pushed.elapsed());
    // Nobody has told yet how many jobs a worker runs at once, so it is one for each: four, and no more.
    wait_for("four pods", Duration::from_secs(60), || async {
        let most = stage.running(workers.name).await.len();
        assert!(most <= 4);
        (most == 4).then_some(())
    })
    .await;
    let short: Vec<String> = all.iter().filter(|job| !long.contains(job)).cloned().collect();
    stage.all_end(&short, Duration::from_secs(60)).await;
    // The idle ones go first, while the long jobs run on.
    wait_for("fewer pods while a long job runs", Duration::from_secs(20), || async {
        let running = stage.running(workers.name).await.len();
        let works = long.iter().any(|job| stage.journal.runs(job) == (1, 0));
        (running < 4 && works).then_some(())
    })
    .await;
    stage.gone_without_a_cut(workers.name, &all, Duration::from_secs(90)).await;
    for job in &all {
        assert_eq!(stage.journal.runs(job), (1, 1), "{job}");
    }
    let status = stage.namespace.status("q", "nothing runs", |s| s.replicas == 0 && s.running == 0).await;
    assert_eq!(status.totals.jobs_requeued, 0, "nothing had to be given back");
    let events = stage.namespace.api::<Event>().list(&ListParams::default()).await.unwrap();
    for wanted in ["ScaledUp", "ScaledDown"] {
        assert!(events.iter().any(|event| event.reason.as_deref() == Some(wanted)), "an Event {wanted}");
    }
    stage.end().await;
}

#[tokio::test]
async fn a_stateful_set_goes_down_behind_its_busy_ordinals() {
    let stage = Stage::new("stateful").await;
    let workers = workers();
    let (mut target, mut object) = (workers.target(), workers.deployment());
    object["kind"] = json!("StatefulSet");
    object["spec"]["serviceName"] = json!("w");
    object["spec"]["podManagementPolicy"] = json!("Parallel");
    object["spec"]["replicas"] = json!(3);
    stage.namespace.create::<StatefulSet>(object).await;
    target["scaleTargetRef"]["kind"] = json!("StatefulSet");
    stage.wait_running(workers.name, 3).await;
    let jobs = stage.enqueue("mail", 6, &json!({"ms": 12000}));
    wait_for("all to run", Duration::from_secs(40), || async {
        jobs.iter().all(|job| stage.journal.runs(job).0 == 1).then_some(())
    })
    .await;
    stage
        .namespace
        .job_queue(
            "q",
            stage.scaled(&target, &json!({"maxReplicas": 3, "jobsPerReplica": 6, "scaleDownStabilizationSeconds": 0})),
        )
        .await
        .unwrap();
    stage.all_end(&jobs, Duration::from_secs(60)).await;
    stage.gone_without_a_cut(workers.name, &jobs, Duration::from_secs(60)).await;
    for job in &jobs {
        assert_eq!(stage.journal.runs(job), (1, 1), "{job}");
    }
    stage.end().await;
}
