//! The operator's own process: it ends well when asked to, tells how it is, and keeps secrets to itself.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{ListParams, LogParams, Patch, PatchParams};
use poolkeeper::api::job_queue::JobQueue;
use serde_json::json;

use super::Stage;
use crate::support::cluster::{operator_pods, operators_ready, process_of_pod, running_container, signal};
use crate::support::kube::{client, condition, wait_for};
use crate::support::workers::Workers;

/// A page of one replica, through the API server.
async fn page(pod: &Pod, path: &str) -> Option<String> {
    let (namespace, name) = (pod.namespace().expect("a namespace"), pod.name_any());
    let request = axum::http::Request::get(format!("/api/v1/namespaces/{namespace}/pods/{name}:8080/proxy{path}"));
    client().await.request_text(request.body(Vec::new()).expect("a request")).await.ok()
}

#[tokio::test]
async fn the_operator_ends_well_when_asked_to_and_is_ready_again_with_its_pages() {
    let replica = operators_ready().await.remove(0);
    let before = running_container(&replica).expect("it runs");
    let pods = operator_pods(&client().await);
    let asked = Instant::now();
    signal(process_of_pod(&replica), "TERM");
    let code = wait_for("its end", Duration::from_secs(30), || async {
        let status = pods.get(&replica.name_any()).await.ok()?.status?.container_statuses?.into_iter().next()?;
        let ends = [status.state, status.last_state].into_iter().flatten().filter_map(|state| state.terminated);
        let ours = ends.into_iter().find(|end| end.container_id.as_ref().is_some_and(|id| id.ends_with(&before)))?;
        Some(ours.exit_code)
    })
    .await;
    println!("SIGTERM: ended with {code}, reported after {:?}", asked.elapsed());
    assert_eq!(code, 0);
    assert!(asked.elapsed() < Duration::from_secs(10), "far below its grace period: {:?}", asked.elapsed());
    let ready = operators_ready().await;
    for pod in &ready {
        assert!(page(pod, "/healthz").await.is_some() && page(pod, "/readyz").await.is_some());
        let metrics = page(pod, "/metrics").await.expect("metrics");
        assert!(metrics.contains("poolkeeper_leader") && metrics.ends_with("# EOF\n"), "{metrics}");
    }
}

#[tokio::test]
async fn a_password_out_of_a_secret_serves_and_is_found_nowhere_else() {
    // What breaks a URL, see case C25.
    let (password, encoded) = ("p@ss:w/rd#1%x", "p%40ss%3Aw%2Frd%231%25x");
    let stage = Stage::with_redis("secret", &["--requirepass", password], &format!(":{encoded}@")).await;
    let secret = |password: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "redis"}, "stringData": {"password": password}});
    let secrets = stage.namespace.api::<Secret>();
    let wrong = "n0t-the-passw0rd";
    stage.namespace.create::<Secret>(secret(wrong)).await;
    let redis_url = format!("redis://:{encoded}@redis:6379/0");
    let workers = Workers { redis_url, ..Workers::default() };
    let mut spec = stage.spec(json!({"jobs": [{"name": "mail", "maxConcurrency": 3}], "workers": workers.target()}));
    spec["redis"]["passwordFrom"] = json!({"secretKeyRef": {"name": "redis", "key": "password"}});
    stage.namespace.job_queue("q", spec).await.unwrap();
    workers.apply(&stage.namespace).await;
    stage.namespace.status("q", "a refusal", |s| condition(s, "RedisReachable") == ("False", "WrongPassword")).await;
    let right = Patch::Apply(secret(password));
    secrets.patch("redis", &PatchParams::apply("test").force(), &right).await.expect("the right one");
    stage.namespace.status("q", "caps held", |s| condition(s, "ConcurrencyApplied").0 == "True").await;
    let jobs = stage.enqueue("mail", 3, &json!({"ms": 10}));
    stage.all_end(&jobs, Duration::from_secs(30)).await;

    let mut said = Vec::new();
    for pod in operators_ready().await {
        let log = operator_pods(&stage.namespace.client).logs(&pod.name_any(), &LogParams::default()).await.unwrap();
        assert!(log.contains(&stage.namespace.name), "the log tells of this queue");
        said.extend([log, page(&pod, "/metrics").await.expect("metrics")]);
    }
    let queue = stage.namespace.api::<JobQueue>().get("q").await.unwrap();
    said.push(serde_json::to_string(&queue).unwrap());
    let events = stage.namespace.api::<Event>().list(&ListParams::default()).await.unwrap();
    said.push(serde_json::to_string(&events.items).unwrap());
    for secret in [password, encoded, wrong] {
        assert!(said.iter().all(|text| !text.contains(secret)), "a secret was told");
    }
    stage.end().await;
}
