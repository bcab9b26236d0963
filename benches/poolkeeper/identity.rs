//! An identity of its own for the operator, so that its requests can be told from the benchmark's.

use std::path::PathBuf;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::operator::folder;
use crate::support::kube::kubeconfig;

const NAME: &str = "bench-operator";

/// Makes a service account with all rights, and a kubeconfig for it. Gives its user name and that file.
pub async fn of_the_operator(client: &Client, namespace: &str) -> (String, PathBuf) {
    let as_bench = PatchParams::apply("bench").force();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}});
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    accounts.patch(NAME, &as_bench, &Patch::Apply(&account)).await.expect("a service account");
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": NAME},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    });
    let bindings = Api::<ClusterRoleBinding>::all(client.clone());
    bindings.patch(NAME, &as_bench, &Patch::Apply(&binding)).await.expect("its rights");
    let wanted: TokenRequest =
        serde_json::from_value(json!({"spec": {"audiences": [], "expirationSeconds": 86_400}})).unwrap();
    let made = accounts.create_token_request(NAME, &PostParams::default(), &wanted).await.expect("a token");
    let text = std::fs::read_to_string(kubeconfig()).expect("a kubeconfig");
    let mut config: Value = serde_yaml::from_str(&text).expect("a kubeconfig");
    config["users"][0]["user"] = json!({"token": made.status.expect("a token").token});
    let file = folder().join("operator.kubeconfig");
    std::fs::write(&file, config.to_string()).expect("a kubeconfig");
    (format!("system:serviceaccount:{namespace}:{NAME}"), file)
}
