//! Workers by template and by target.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use poolkeeper::api::job_queue::JobQueue;
use serde_json::json;

use super::Stage;
use crate::support::kube::{condition, wait_for};
use crate::support::pods::{deployment, pods_of};

#[tokio::test]
async fn a_template_becomes_a_deployment_that_scale_moves() {
    let stage = Stage::new("template").await;
    let _operator = stage.operator().await;
    let template = json!({"spec": {"containers": [{"name": "w", "image": "i"}]}});
    stage
        .namespace
        .job_queue("mail", stage.spec(json!({"workers": {"template": template, "replicas": 2}})))
        .await
        .unwrap();
    let status =
        stage.namespace.status("mail", "two replicas", |s| s.replicas == 2 && condition(s, "Ready").0 == "True").await;
    assert_eq!(status.selector.as_deref(), Some("poolkeeper.dev/jobqueue=mail"));

    let queues: Api<JobQueue> = stage.namespace.api();
    queues
        .patch_scale("mail", &PatchParams::default(), &Patch::Merge(&json!({"spec": {"replicas": 3}})))
        .await
        .expect("kubectl scale");
    let deployments: Api<Deployment> = stage.namespace.api();
    wait_for("three replicas asked for", Duration::from_secs(20), || async {
        let found = deployments.get("mail").await.ok()?;
        (found.spec.replicas == Some(3)).then_some(())
    })
    .await;

    queues.delete("mail", &DeleteParams::default()).await.unwrap();
    wait_for("the queue and its Deployment to go", Duration::from_secs(40), || async {
        let gone = queues.get_opt("mail").await.ok()?.is_none() && deployments.get_opt("mail").await.ok()?.is_none();
        gone.then_some(())
    })
    .await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn c15_the_manifest_of_a_real_job_service_is_taken() {
    let stage = Stage::new("jobservice").await;
    let _operator = stage.operator().await;
    let mut spec = stage.spec(json!({
        "gocraftWork": {"namespace": "{harbor_job_service_namespace}"},
        "workers": {
            "template": {"spec": {
                "terminationGracePeriodSeconds": 120,
                "initContainers": [{"name": "wait", "image": "busybox", "command": ["sh", "-c", "sleep 5"]}],
                "containers": [{"name": "jobservice", "image": "example/worker", "resources": {"requests": {"cpu": 1, "memory": "64Mi"}}}],
            }},
            "strategy": {"type": "Recreate", "rollingUpdate": null},
        },
        "jobs": [{"name": "IMAGE_SCAN", "maxConcurrency": 3}],
    }));
    spec["redis"]["url"] = json!(stage.server.url().replace("/0", "/1"));
    stage.namespace.job_queue("jobservice", spec).await.expect("the manifest is taken");
    stage.namespace.status("jobservice", "Ready", |s| condition(s, "Ready").0 == "True").await;
    let made = stage.namespace.api::<Deployment>().get("jobservice").await.unwrap();
    assert_eq!(made.spec.strategy.unwrap().type_.as_deref(), Some("Recreate"));
    let mut redis = stage.server.connection().await;
    crate::support::redis::line::<()>(&mut redis, "SELECT 1").await;
    let cap: String =
        crate::support::redis::line(&mut redis, "GET {harbor_job_service_namespace}:jobs:IMAGE_SCAN:max_concurrency")
            .await;
    assert_eq!(cap, "3", "in database 1, braces kept");
    stage.namespace.delete().await;
}

#[tokio::test]
async fn somebody_elses_deployment_of_that_name_is_left_alone() {
    let stage = Stage::new("taken").await;
    deployment(&stage.namespace, "mail", 1).await;
    let _operator = stage.operator().await;
    let template = json!({"spec": {"containers": [{"name": "w", "image": "i"}]}});
    stage.namespace.job_queue("mail", stage.spec(json!({"workers": {"template": template}}))).await.unwrap();
    let status = stage
        .namespace
        .status("mail", "the condition", |s| condition(s, "WorkersAvailable") == ("False", "DeploymentNameTaken"))
        .await;
    assert_eq!(condition(&status, "Stalled"), ("True", "DeploymentNameTaken"));
    let kept = stage.namespace.api::<Deployment>().get("mail").await.unwrap();
    assert!(kept.owner_references().is_empty());
    stage.namespace.delete().await;
}

#[tokio::test]
async fn a_missing_target_is_a_condition_and_is_found_when_it_comes() {
    let stage = Stage::new("target").await;
    let _operator = stage.operator().await;
    let workers = json!({"workers": {"scaleTargetRef": {"kind": "Deployment", "name": "late"}}});
    stage.namespace.job_queue("mail", stage.spec(workers)).await.unwrap();
    stage
        .namespace
        .status("mail", "the condition", |s| condition(s, "WorkersAvailable") == ("False", "TargetNotFound"))
        .await;
    deployment(&stage.namespace, "late", 2).await;
    pods_of(&stage.namespace, "app=late", 2).await;
    stage
        .namespace
        .status("mail", "the target", |s| condition(s, "WorkersAvailable").0 == "True" && s.replicas == 2)
        .await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn a_deployment_that_somebody_changed_or_deleted_is_made_right() {
    let stage = Stage::new("drift").await;
    let _operator = stage.operator().await;
    let template = json!({"spec": {"containers": [{"name": "w", "image": "right"}]}});
    stage
        .namespace
        .job_queue("mail", stage.spec(json!({"workers": {"template": template, "replicas": 1}})))
        .await
        .unwrap();
    stage.namespace.status("mail", "a replica", |s| s.replicas == 1).await;
    let deployments: Api<Deployment> = stage.namespace.api();
    let image = || async {
        let found = deployments.get_opt("mail").await.ok()??;
        found.spec.template.spec?.containers.first()?.image.clone()
    };
    let wrong = json!({"spec": {"template": {"spec": {"containers": [{"name": "w", "image": "wrong"}]}}}});
    deployments.patch("mail", &PatchParams::default(), &Patch::Strategic(&wrong)).await.unwrap();
    wait_for("the image to be right", Duration::from_secs(10), || async { (image().await? == "right").then_some(()) })
        .await;
    let uid = deployments.get("mail").await.unwrap().uid();
    deployments.delete("mail", &DeleteParams::background()).await.unwrap();
    // Whatever changes it again and again is answered later each time, after 1, 2, 4 s and so on.
    wait_for("another Deployment", Duration::from_secs(40), || async {
        let found = deployments.get_opt("mail").await.ok()??;
        (found.uid() != uid).then_some(())
    })
    .await;
    stage.namespace.delete().await;
}
