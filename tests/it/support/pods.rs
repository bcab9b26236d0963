//! Worker pods of a control plane without kubelets: the controllers make them, and a test says what a kubelet would.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::kube::{TestNamespace, wait_for};

/// Epoch seconds of this machine's clock, as RFC 3339.
pub fn rfc3339(epoch_seconds: i64) -> String {
    k8s_openapi::jiff::Timestamp::from_second(epoch_seconds).unwrap().to_string()
}

/// Epoch seconds now.
pub fn now() -> i64 {
    k8s_openapi::jiff::Timestamp::now().as_second()
}

/// Makes a Deployment of workers that pulls no image and runs nowhere.
pub async fn deployment(namespace: &TestNamespace, name: &str, replicas: i32) {
    make(namespace, name, replicas, json!({"containers": [{"name": "worker", "image": "none"}]})).await;
}

/// The same, with pods on a node that has no kubelet: a pod whose deletion was asked for stays until a test says that it
/// ended. (Pods without a node are given up by the pod garbage collector.)
pub async fn deployment_on_a_node(namespace: &TestNamespace, name: &str, replicas: i32) {
    node(namespace).await;
    let spec = json!({"nodeName": "without-kubelet", "containers": [{"name": "worker", "image": "none"}]});
    make(namespace, name, replicas, spec).await;
}

/// A node without a kubelet, called `without-kubelet`.
pub async fn node(namespace: &TestNamespace) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "without-kubelet"}});
    Api::<Node>::all(namespace.client.clone())
        .patch("without-kubelet", &PatchParams::apply("test").force(), &Patch::Apply(&node))
        .await
        .expect("a node");
}

async fn make(namespace: &TestNamespace, name: &str, replicas: i32, pod: Value) {
    namespace
        .create::<Deployment>(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
            },
        }))
        .await;
}

/// The names of a Deployment's pods, once there are as many as wanted.
pub async fn pods_of(namespace: &TestNamespace, label: &str, count: usize) -> Vec<String> {
    wait_for(&format!("{count} pods with {label}"), Duration::from_secs(30), || async {
        let pods = namespace.api::<Pod>().list(&ListParams::default().labels(label)).await.ok()?;
        let names: Vec<String> =
            pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).map(ResourceExt::name_any).collect();
        (names.len() == count).then_some(names)
    })
    .await
}

/// What a kubelet reports of a pod's only container.
pub async fn report(namespace: &TestNamespace, pod: &str, phase: &str, container: Value) {
    let mut container = container;
    for (field, value) in [
        ("name", json!("worker")),
        ("image", json!("none")),
        ("imageID", json!("")),
        ("ready", json!(phase == "Running")),
    ] {
        container[field] = value;
    }
    if container.get("restartCount").is_none() {
        container["restartCount"] = json!(0);
    }
    let status = json!({"status": {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": if phase == "Running" { "True" } else { "False" }}],
        "containerStatuses": [container],
    }});
    namespace
        .api::<Pod>()
        .patch_status(pod, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .expect("a pod's status");
}

/// A container that runs.
pub async fn runs(namespace: &TestNamespace, pod: &str, id: &str, started_at: i64) {
    report(
        namespace,
        pod,
        "Running",
        json!({"containerID": format!("containerd://{id}"), "state": {"running": {"startedAt": rfc3339(started_at)}}}),
    )
    .await;
}

/// The terminated state of a container.
pub fn terminated(id: &str, started_at: i64, finished_at: i64, reason: &str, exit_code: i32) -> Value {
    json!({"terminated": {
        "containerID": format!("containerd://{id}"), "startedAt": rfc3339(started_at), "finishedAt": rfc3339(finished_at),
        "reason": reason, "exitCode": exit_code,
    }})
}

/// Deletes a pod's object at once, as a forced deletion does.
pub async fn vanish(namespace: &TestNamespace, pod: &str) {
    namespace.api::<Pod>().delete(pod, &DeleteParams::default().grace_period(0)).await.expect("the pod goes");
}
