//! Rights that are missing for scaling, and what is told of them.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Patch, PatchParams, PostParams};
use poolkeeper::api::status::JobQueueStatus;
use serde_json::{Value, json};

use super::Stage;
use super::scaling::scaled;
use crate::support::kube::{condition, kubeconfig};
use crate::support::operator::Operator;
use crate::support::pods::deployment;

impl Stage {
    /// What the operator of [`Self::limited`] may do: all in the namespace but in the groups of autoscalers, and `more`.
    async fn may_also(&self, more: &[Value]) {
        let groups = ["", "apps", "poolkeeper.dev", "events.k8s.io", "coordination.k8s.io"];
        let most = json!({"apiGroups": groups, "resources": ["*"], "verbs": ["*"]});
        let rules: Vec<&Value> = [&most].into_iter().chain(more).collect();
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "operator"}, "rules": rules});
        let params = PatchParams::apply("test").force();
        self.namespace.api::<Role>().patch("operator", &params, &Patch::Apply(&role)).await.unwrap();
    }

    /// The kubeconfig of an operator that may do what [`Self::may_also`] says.
    async fn limited(&self, folder: &tempfile::TempDir) -> PathBuf {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "operator"}});
        self.namespace.create::<ServiceAccount>(account).await;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "operator"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"},
            "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": self.namespace.name}],
        });
        self.namespace.create::<RoleBinding>(binding).await;
        let wanted = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
        let accounts = self.namespace.api::<ServiceAccount>();
        let made = accounts.create_token_request("operator", &PostParams::default(), &wanted).await.unwrap();
        let text = std::fs::read_to_string(kubeconfig()).unwrap();
        let mut config: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
        config["users"][0]["user"] = serde_yaml::to_value(json!({"token": made.status.unwrap().token})).unwrap();
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, serde_yaml::to_string(&config).unwrap()).unwrap();
        path
    }
}

fn message(status: &JobQueueStatus) -> &str {
    status.conditions.iter().find(|c| c.type_ == "ScalingActive").map_or("", |c| &c.message)
}

#[tokio::test]
async fn a_right_to_list_autoscalers_that_is_missing_is_named_and_scaling_goes_on() {
    let stage = Stage::new("rights").await;
    deployment(&stage.namespace, "w", 0).await;
    stage.may_also(&[]).await;
    let folder = tempfile::tempdir().unwrap();
    let through = stage.limited(&folder).await;
    let operator = Operator::start_with(&through, &stage.namespace.name, &["--cluster-name", "here"]).await;
    stage.push("mail", 3).await;
    stage.namespace.job_queue("q", scaled(&stage, json!({}))).await.unwrap();
    stage.until_replicas(3, Duration::from_secs(20)).await;
    let status = stage
        .namespace
        .status("q", "the rule", |s| condition(s, "ScalingActive") == ("True", "AutoscalersForbidden"))
        .await;
    assert!(message(&status).contains("may not list horizontalpodautoscalers in group autoscaling,"), "{status:?}");
    assert!(!message(&status).contains("scaledobjects"), "there is no KEDA, so no right is missing: {status:?}");
    assert_eq!(condition(&status, "Ready").0, "True");
    let log = operator.log();
    assert_eq!(log.matches("may not list horizontalpodautoscalers.autoscaling").count(), 1, "{log}");

    stage
        .may_also(&[
            json!({"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": ["list"]}),
        ])
        .await;
    // They are listed every 30 seconds.
    stage.namespace.status("q", "it", |s| condition(s, "ScalingActive") == ("True", "FollowsTheWork")).await;
    stage.namespace.delete().await;
}
