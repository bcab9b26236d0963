//! Others' hands on the same target: people, autoscalers, other queues; and rights that are missing.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::Stage;
use super::scaling::scaled;
use crate::support::kube::{condition, wait_for};
use crate::support::pods::deployment;

impl Stage {
    async fn kubectl_scale(&self, replicas: i32) {
        let body = json!({"spec": {"replicas": replicas}});
        let (api, params) = (self.namespace.api::<Deployment>(), PatchParams::default());
        api.patch_scale("w", &params, &Patch::Merge(&body)).await.expect("scaled");
    }

    /// What a tool that syncs from git does that has `replicas` in its manifest.
    async fn sync(&self, replicas: i32) {
        let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"}, "spec": {"replicas": replicas}});
        let params = PatchParams::apply("argocd-controller").force();
        self.namespace.api::<Deployment>().patch("w", &params, &Patch::Apply(&body)).await.expect("synced");
    }
}

#[tokio::test]
async fn kubectl_scale_is_put_right_and_one_who_goes_on_is_named() {
    let stage = Stage::new("hands").await;
    deployment(&stage.namespace, "w", 0).await;
    let _operator = stage.operator().await;
    let spec = scaled(&stage, json!({"minReplicas": 2, "scaleDownStabilizationSeconds": 0}));
    stage.namespace.job_queue("q", spec).await.unwrap();
    stage.until_replicas(2, Duration::from_secs(20)).await;
    stage.kubectl_scale(5).await;
    stage.until_replicas(2, Duration::from_secs(20)).await;
    for _ in 0..3 {
        stage.sync(0).await;
        stage.until_replicas(2, Duration::from_secs(30)).await;
    }
    stage
        .namespace
        .status("q", "the contention, with a name", |s| {
            condition(s, "ScalingActive") == ("False", "ReplicasContended")
                && s.conditions.iter().any(|c| c.type_ == "ScalingActive" && c.message.contains("argocd-controller"))
        })
        .await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn an_autoscaler_on_the_target_keeps_its_hands_and_ours_off() {
    let stage = Stage::new("hpa").await;
    deployment(&stage.namespace, "w", 1).await;
    let hpa = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "w-hpa"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"}, "minReplicas": 1, "maxReplicas": 3,
                 "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]},
    });
    stage.namespace.create::<HorizontalPodAutoscaler>(hpa).await;
    let operator = stage.operator().await;
    stage.push("mail", 50).await;
    stage.namespace.job_queue("q", scaled(&stage, json!({"jobsPerReplica": 10}))).await.unwrap();
    let status = stage
        .namespace
        .status("q", "the condition", |s| condition(s, "ScalingActive") == ("False", "ScaledByAnother"))
        .await;
    assert!(status.conditions.iter().any(|c| c.type_ == "ScalingActive" && c.message.contains("w-hpa")), "{status:?}");
    assert_eq!(condition(&status, "Ready").0, "False");
    stage.passes(&operator, "q", 3).await;
    assert_eq!(stage.replicas().await, 1);
    stage.namespace.api::<HorizontalPodAutoscaler>().delete("w-hpa", &DeleteParams::default()).await.unwrap();
    stage.until_replicas(5, Duration::from_secs(60)).await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn of_two_queues_on_one_target_the_older_scales() {
    let stage = Stage::new("two").await;
    deployment(&stage.namespace, "w", 0).await;
    let operator = stage.operator().await;
    stage.namespace.job_queue("z-old", scaled(&stage, json!({"minReplicas": 1}))).await.unwrap();
    stage.until_replicas(1, Duration::from_secs(20)).await;
    wait_for("the next second", Duration::from_secs(5), || async {
        // Creation times are whole seconds.
        let created = stage.namespace.api::<poolkeeper::api::job_queue::JobQueue>().get("z-old").await.ok()?;
        (crate::support::pods::now() > created.metadata.creation_timestamp?.0.as_second()).then_some(())
    })
    .await;
    stage.namespace.job_queue("a-new", scaled(&stage, json!({"minReplicas": 7}))).await.unwrap();
    let status = stage
        .namespace
        .status("a-new", "the condition", |s| condition(s, "ScalingActive") == ("False", "TargetTaken"))
        .await;
    assert!(status.conditions.iter().any(|c| c.type_ == "ScalingActive" && c.message.contains("z-old")), "{status:?}");
    stage.passes(&operator, "a-new", 2).await;
    assert_eq!(stage.replicas().await, 1);
    stage
        .namespace
        .api::<poolkeeper::api::job_queue::JobQueue>()
        .delete("z-old", &DeleteParams::default())
        .await
        .unwrap();
    stage.until_replicas(7, Duration::from_secs(20)).await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn a_target_that_is_missing_of_another_kind_or_made_anew() {
    let stage = Stage::new("target").await;
    let _operator = stage.operator().await;
    stage.push("mail", 1).await;
    stage.namespace.job_queue("q", scaled(&stage, json!({}))).await.unwrap();
    stage.namespace.status("q", "not found", |s| condition(s, "ScalingActive") == ("False", "TargetNotFound")).await;
    deployment(&stage.namespace, "w", 0).await;
    stage.until_replicas(1, Duration::from_secs(40)).await;

    stage.namespace.api::<Deployment>().delete("w", &DeleteParams::background()).await.unwrap();
    wait_for("it to go", Duration::from_secs(20), || async {
        stage.namespace.api::<Deployment>().get_opt("w").await.ok()?.is_none().then_some(())
    })
    .await;
    deployment(&stage.namespace, "w", 0).await;
    stage.push("mail", 3).await;
    wait_for("replicas of the new one", Duration::from_secs(40), || async {
        (stage.replicas().await >= 1).then_some(())
    })
    .await;

    let mut spec = scaled(&stage, json!({}));
    spec["workers"]["scaleTargetRef"] = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "w"});
    stage.namespace.job_queue("other", spec).await.unwrap();
    stage
        .namespace
        .status("other", "no scale", |s| {
            let (holds, reason) = condition(s, "ScalingActive");
            holds == "False" && ["TargetHasNoScale", "TargetNotFound"].contains(&reason)
        })
        .await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn the_pause_annotation_stops_scaling_and_its_end_lets_it_go_on() {
    let stage = Stage::new("halt").await;
    deployment(&stage.namespace, "w", 0).await;
    let operator = stage.operator().await;
    let queue = stage.namespace.job_queue("q", scaled(&stage, json!({}))).await.unwrap();
    stage.until_it_scales("q").await;
    let api = stage.namespace.api::<poolkeeper::api::job_queue::JobQueue>();
    let annotate = async |value: serde_json::Value| {
        let body = json!({"metadata": {"annotations": {"poolkeeper.dev/paused": value}}});
        api.patch(queue.metadata.name.as_deref().unwrap(), &PatchParams::default(), &Patch::Merge(&body))
            .await
            .unwrap();
    };
    annotate(json!("true")).await;
    stage.namespace.status("q", "paused", |s| condition(s, "Ready") == ("False", "Paused")).await;
    stage.push("mail", 5).await;
    let other = stage.namespace.job_queue("witness", stage.spec(json!({}))).await.unwrap();
    stage.passes(&operator, other.metadata.name.as_deref().unwrap(), 4).await;
    assert_eq!(stage.replicas().await, 0);
    annotate(serde_json::Value::Null).await;
    stage.until_replicas(5, Duration::from_secs(20)).await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn observing_only_decides_and_writes_nothing() {
    let stage = Stage::new("observe-scaling").await;
    deployment(&stage.namespace, "w", 1).await;
    let operator = crate::support::operator::Operator::start(&stage.namespace.name, &["--observe-only"]).await;
    stage.push("mail", 5).await;
    stage.namespace.job_queue("q", scaled(&stage, json!({}))).await.unwrap();
    let metric = format!("poolkeeper_desired_replicas{{namespace=\"{}\",jobqueue=\"q\"}} ", stage.namespace.name);
    wait_for("the decision", Duration::from_secs(20), || async {
        (operator.metric(&metric).await? >= 5.0).then_some(())
    })
    .await;
    stage.passes(&operator, "q", 2).await;
    assert_eq!(stage.replicas().await, 1);
    stage.namespace.delete().await;
}
