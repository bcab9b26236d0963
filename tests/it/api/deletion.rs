//! Deleted `JobQueue`s: their workers end and are settled first, and nothing hangs.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use poolkeeper::api::job_queue::JobQueue;
use serde_json::{Value, json};

use super::Stage;
use crate::support::kube::wait_for;
use crate::support::pods::{now, pods_of, report, runs, terminated, vanish};

fn template(node: Option<&str>) -> Value {
    json!({"workers": {"replicas": 1, "template": {"spec": {"nodeName": node, "containers": [{"name": "worker", "image": "none"}]}}}})
}

async fn gone(stage: &Stage, name: &str) {
    let queues = stage.namespace.api::<JobQueue>();
    wait_for("the queue to go", Duration::from_secs(40), || async {
        queues.get_opt(name).await.ok()?.is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_template_s_queue_stays_until_its_worker_has_ended_and_was_settled() {
    let stage = Stage::new("farewell").await;
    crate::support::pods::node(&stage.namespace).await;
    let _operator = stage.operator().await;
    stage.namespace.job_queue("q", stage.spec(template(Some("without-kubelet")))).await.unwrap();
    let pod = pods_of(&stage.namespace, "poolkeeper.dev/jobqueue=q", 1).await.remove(0);
    let start = now();
    runs(&stage.namespace, &pod, "c1", start - 60).await;
    let beats = stage.pools.beating("A", start - 59, &pod, "mail").await;
    stage.pools.takes("A", "mail", &["a1"]).await;
    wait_for("a binding", Duration::from_secs(20), || async { stage.pools.is_bound("A").await.then_some(()) }).await;

    let queues = stage.namespace.api::<JobQueue>();
    queues.delete("q", &DeleteParams::default()).await.unwrap();
    let pods = stage.namespace.api::<Pod>();
    wait_for("the pod's deletion to be asked for", Duration::from_secs(20), || async {
        pods.get(&pod).await.ok()?.metadata.deletion_timestamp.map(|_| ())
    })
    .await;
    assert!(queues.get_opt("q").await.unwrap().is_some(), "its worker still runs");
    assert_eq!(stage.pools.lock("mail").await, 1, "and keeps its lock");
    drop(beats);
    report(
        &stage.namespace,
        &pod,
        "Running",
        json!({"containerID": "containerd://c1", "state": terminated("c1", start - 60, now(), "Completed", 0)}),
    )
    .await;
    wait_for("the reap", Duration::from_secs(10), || async {
        (stage.pools.waiting("mail").await == ["a1"]).then_some(())
    })
    .await;
    vanish(&stage.namespace, &pod).await;
    gone(&stage, "q").await;
    assert_eq!(stage.pools.lock("mail").await, 0);
    stage.namespace.delete().await;
}

#[tokio::test]
async fn one_that_is_deleted_right_after_it_was_made_goes_too() {
    let stage = Stage::new("moments").await;
    let _operator = stage.operator().await;
    let queues = stage.namespace.api::<JobQueue>();
    for n in 0..8 {
        let name = format!("q{n}");
        let mut spec = stage.spec(template(None));
        spec["deletionPolicy"] = json!("Release");
        stage.namespace.job_queue(&name, spec).await.unwrap();
        // At different moments of its making.
        if n % 2 == 1 {
            wait_for("the finalizer", Duration::from_secs(20), || async {
                queues.get(&name).await.ok()?.metadata.finalizers.filter(|f| !f.is_empty()).map(|_| ())
            })
            .await;
        }
        queues.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    for n in 0..8 {
        gone(&stage, &format!("q{n}")).await;
    }
    stage.namespace.delete().await;
}

#[tokio::test]
async fn one_that_goes_before_it_could_get_its_finalizer_releases_its_caps_all_the_same() {
    let stage = Stage::new("unfinalized").await;
    // Somebody else leads for as long as this takes, so nobody adds a finalizer; caps are pushed by every replica.
    let now =
        k8s_openapi::jiff::Timestamp::from_second(now()).unwrap().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "poolkeeper"},
        "spec": {"holderIdentity": "another", "leaseDurationSeconds": 600, "renewTime": now, "acquireTime": now},
    });
    stage.namespace.create::<Lease>(lease).await;
    let _operator = stage.operator().await;
    let spec = stage.spec(json!({"jobs": [{"name": "mail", "maxConcurrency": 5}], "deletionPolicy": "Release"}));
    stage.namespace.job_queue("q", spec).await.unwrap();
    let cap = async || stage.pools.cap("mail").await;
    wait_for("the cap", Duration::from_secs(20), || async { (cap().await.as_deref() == Some("5")).then_some(()) })
        .await;
    let queues = stage.namespace.api::<JobQueue>();
    assert!(queues.get("q").await.unwrap().metadata.finalizers.is_none_or(|names| names.is_empty()));
    queues.delete("q", &DeleteParams::default()).await.unwrap();
    wait_for("the cap to be taken back", Duration::from_secs(20), || async { cap().await.is_none().then_some(()) })
        .await;
    stage.namespace.delete().await;
}
