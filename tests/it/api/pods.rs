//! What the operator knows of pods, through an API server that goes away and comes back.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use super::{Stage, Worker};
use crate::support::kube::{condition, kubeconfig, wait_for};
use crate::support::operator::Operator;
use crate::support::pods::{now, report, terminated};
use crate::support::proxy::Proxy;

/// A proxy in front of the API server, and a kubeconfig that goes through it.
async fn behind_a_proxy(folder: &tempfile::TempDir) -> (Proxy, PathBuf) {
    let text = std::fs::read_to_string(kubeconfig()).unwrap();
    let mut config: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
    let cluster = &mut config["clusters"][0]["cluster"];
    let server = cluster["server"].as_str().unwrap().trim_start_matches("https://").to_owned();
    let address: SocketAddr = server.parse().unwrap();
    let proxy = Proxy::to(address).await;
    cluster["server"] = format!("https://{}", proxy.address).into();
    cluster["tls-server-name"] = "kubernetes.default.svc".into();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, serde_yaml::to_string(&config).unwrap()).unwrap();
    (proxy, path)
}

#[tokio::test]
async fn c47_what_happened_while_the_api_server_was_away_is_found_when_it_is_back() {
    let stage = Stage::new("away").await;
    let Worker { pod, start, beats } = stage.worker(&["a1"]).await;
    let folder = tempfile::tempdir().unwrap();
    let (proxy, through) = behind_a_proxy(&folder).await;
    let operator = Operator::start_with(&through, &stage.namespace.name, &[]).await;
    let spec = json!({"workers": {"scaleTargetRef": {"kind": "Deployment", "name": "w"}}, "jobs": [{"name": "sms", "maxConcurrency": 3}]});
    stage.namespace.job_queue("q", stage.spec(spec)).await.unwrap();
    wait_for("a binding", Duration::from_secs(20), || async { stage.pools.is_bound("A").await.then_some(()) }).await;

    proxy.stall();
    proxy.cut();
    // Else its next beat puts it back into the set.
    drop(beats);
    report(
        &stage.namespace,
        &pod,
        "Running",
        json!({"containerID": "containerd://c1", "state": terminated("c1", start - 60, now(), "Error", 137)}),
    )
    .await;
    stage.pools.set("jobs:sms:max_concurrency", "9").await;
    wait_for("the cap to be back without the API server", Duration::from_secs(10), || async {
        (stage.pools.cap("sms").await.as_deref() == Some("3")).then_some(())
    })
    .await;
    assert!(stage.pools.knows("A").await, "nobody could tell of its end");

    proxy.pass();
    proxy.cut();
    wait_for("the reap", Duration::from_secs(60), || async { (!stage.pools.knows("A").await).then_some(()) }).await;
    assert_eq!(stage.pools.waiting("mail").await, ["a1"]);
    stage.namespace.status("q", "a report", |s| s.last_reap.is_some() && condition(s, "Ready").0 == "True").await;
    assert_eq!(operator.get("/readyz").await.map(|page| page.0), Some(200));
    stage.namespace.delete().await;
}

#[tokio::test]
async fn each_bad_target_is_a_condition_of_its_own() {
    let stage = Stage::new("targets").await;
    let _operator = stage.operator().await;
    for (name, target, reason) in [
        ("missing", json!({"kind": "Deployment", "name": "nobody"}), "TargetNotFound"),
        ("unknown", json!({"apiVersion": "example.com/v1", "kind": "Rollout", "name": "w"}), "TargetNotFound"),
        (
            "unscalable",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "kube-root-ca.crt"}),
            "TargetHasNoScale",
        ),
    ] {
        let mut spec = stage.spec(json!({"workers": {"scaleTargetRef": target}}));
        spec["gocraftWork"]["namespace"] = json!(name);
        stage.namespace.job_queue(name, spec).await.unwrap();
        let status =
            stage.namespace.status(name, reason, |s| condition(s, "WorkersAvailable") == ("False", reason)).await;
        assert_eq!(condition(&status, "RedisReachable").0, "True", "Redis is looked after all the same");
    }
    stage.namespace.delete().await;
}
