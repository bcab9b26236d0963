//! Several `JobQueue`s of one Kubernetes namespace on one Redis namespace.

use std::time::Duration;

use serde_json::{Value, json};

use super::Stage;
use crate::support::kube::{condition, wait_for, wait_or};
use crate::support::pods::{deployment, now, pods_of, report, runs, terminated};

fn workers(stage: &Stage, deployment: &str) -> Value {
    stage.spec(json!({"workers": {"scaleTargetRef": {"kind": "Deployment", "name": deployment}}}))
}

/// Each queue's kubelet says that its worker runs, and the other queue, or one that holds caps only, knows nothing of it.
#[tokio::test]
async fn a_frozen_worker_is_left_alone_by_all_queues_but_its_own() {
    let stage = Stage::new("sharing").await;
    let start = now();
    let (mut pods, mut beats) = (Vec::new(), Vec::new());
    for (name, pool) in [("w", "A"), ("v", "B")] {
        deployment(&stage.namespace, name, 1).await;
        let pod = pods_of(&stage.namespace, &format!("app={name}"), 1).await.remove(0);
        runs(&stage.namespace, &pod, &format!("c-{name}"), start - 60).await;
        beats.push(stage.pools.beating(pool, start - 59, &pod, "mail").await);
        stage.pools.takes(pool, "mail", &[&format!("{name}1")]).await;
        pods.push(pod);
    }
    let _operator = stage.operator().await;
    stage.namespace.job_queue("qw", workers(&stage, "w")).await.unwrap();
    stage.namespace.job_queue("qv", workers(&stage, "v")).await.unwrap();
    let caps = stage.spec(json!({"jobs": [{"name": "mail", "maxConcurrency": 9}]}));
    stage.namespace.job_queue("caps", caps).await.unwrap();
    for pool in ["A", "B"] {
        wait_for("a binding", Duration::from_secs(20), || async { stage.pools.is_bound(pool).await.then_some(()) })
            .await;
    }
    stage.namespace.status("caps", "a look", |s| s.running == 2).await;
    drop(beats);
    for queue in ["qw", "qv"] {
        stage
            .namespace
            .status(queue, "the silence noticed", |s| condition(s, "WorkersResponsive") == ("False", "SilentWorkers"))
            .await;
    }
    let lost = wait_or(Duration::from_secs(10), || async {
        let both = stage.pools.knows("A").await && stage.pools.knows("B").await;
        (!both || stage.pools.lock("mail").await != 2).then_some(())
    });
    assert!(lost.await.is_none(), "a worker that its kubelet says to run was reaped");
    report(
        &stage.namespace,
        &pods[0],
        "Running",
        json!({"containerID": "containerd://c-w", "state": terminated("c-w", start - 60, now(), "OOMKilled", 137)}),
    )
    .await;
    wait_for("a reap", Duration::from_secs(10), || async { (!stage.pools.knows("A").await).then_some(()) }).await;
    assert!(stage.pools.knows("B").await);
    assert_eq!(stage.pools.waiting("mail").await, ["w1"]);
    stage.namespace.delete().await;
}
