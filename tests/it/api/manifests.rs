//! Bad manifests: each is refused by the API server with a sentence that says what to do.

use kube::Api;
use kube::api::PostParams;
use kube::core::{ApiResource, DynamicObject};
use poolkeeper::api::job_queue::JobQueue;
use serde_json::{Value, json};

use crate::support::kube::TestNamespace;

fn good() -> Value {
    json!({
        "gocraftWork": {"namespace": "work"},
        "redis": {"url": "redis://redis:6379/0"},
        "jobs": [{"name": "send_email", "maxConcurrency": 2}],
        "workers": {"template": {"spec": {"containers": [{"name": "w", "image": "i"}]}}, "replicas": 1},
    })
}

/// The spec with one place changed; `null` takes a field away.
fn with(pointer: &str, value: Value) -> Value {
    let mut spec = good();
    let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
    let parent = spec.pointer_mut(parent).expect("its parent").as_object_mut().expect("an object");
    if value.is_null() {
        parent.remove(field)
    } else {
        parent.insert(field.into(), value)
    };
    spec
}

/// A spec whose scale target has one field changed.
fn target_with(field: &str, value: &str) -> Value {
    let mut target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"});
    target[field] = json!(value);
    with("/workers", json!({"scaleTargetRef": target}))
}

/// As `kubectl create` does: nothing but the server checks it.
async fn create(namespace: &TestNamespace, spec: Value) -> Result<DynamicObject, kube::Error> {
    let resource = ApiResource::erase::<JobQueue>(&());
    let api = Api::<DynamicObject>::namespaced_with(namespace.client.clone(), &namespace.name, &resource);
    let mut object = DynamicObject::new("bad", &resource);
    object.data = json!({"spec": spec});
    api.create(&PostParams::default(), &object).await
}

#[tokio::test]
async fn what_the_server_can_check_it_refuses_with_a_sentence() {
    let namespace = TestNamespace::new("manifests").await;
    namespace.job_queue("good", good()).await.expect("the good one is taken");
    let secret = json!({"secretKeyRef": {"name": "redis", "key": "url"}});
    let target = json!({"kind": "Deployment", "name": "w"});
    for (what, spec, says) in [
        ("no protocol", with("/gocraftWork", Value::Null), "spec.gocraftWork: Required value"),
        ("no Redis", with("/redis", json!({})), "set exactly one of url and urlFrom"),
        ("two Redis", with("/redis/urlFrom", secret.clone()), "set exactly one of url and urlFrom"),
        ("not a URL", with("/redis/url", json!("redis:6379")), "spec.redis.url"),
        (
            "TLS without rediss",
            with("/redis/tls", json!({"insecureSkipVerify": true})),
            "tls needs a url that begins with rediss://",
        ),
        (
            "half a client certificate",
            with("/redis", json!({"urlFrom": secret, "tls": {"certFrom": secret}})),
            "needs both certFrom and keyFrom",
        ),
        ("a job twice", with("/jobs", json!([{"name": "a"}, {"name": "a"}])), "Duplicate value"),
        ("a nameless job", with("/jobs", json!([{"name": ""}])), "spec.jobs[0].name"),
        ("a negative cap", with("/jobs", json!([{"name": "a", "maxConcurrency": -1}])), "spec.jobs[0].maxConcurrency"),
        (
            "a cap in words",
            with("/jobs", json!([{"name": "a", "maxConcurrency": "two"}])),
            "spec.jobs[0].maxConcurrency",
        ),
        (
            "target and template",
            with("/workers/scaleTargetRef", target.clone()),
            "set at most one of scaleTargetRef and template",
        ),
        (
            "strategy without template",
            with("/workers", json!({"scaleTargetRef": target, "strategy": {"type": "Recreate"}})),
            "strategy goes with template",
        ),
        (
            "replicas without template",
            with("/workers", json!({"scaleTargetRef": target, "replicas": 1})),
            "replicas goes with template",
        ),
        ("a target of no possible name", target_with("name", "Mail_Worker"), "name must be the name of an object"),
        ("a target with spaces", target_with("name", "mail worker"), "name must be the name of an object"),
        ("a target with a path for a name", target_with("name", "w/scale"), "name must be the name of an object"),
        ("a target with an empty label", target_with("name", "a..b"), "name must be the name of an object"),
        ("a target of a long name", target_with("name", &"a".repeat(254)), "scaleTargetRef.name: Too long"),
        ("a target of no possible kind", target_with("kind", "apps/Deployment"), "such as Deployment"),
        ("a target of a kind in two words", target_with("kind", "Stateful Set"), "such as Deployment"),
        ("a target of three parts", target_with("apiVersion", "apps/v1/beta"), "such as apps/v1"),
        ("a target without a version", target_with("apiVersion", "apps/"), "such as apps/v1"),
        ("a target of a version that is none", target_with("apiVersion", "Apps/V1"), "such as apps/v1"),
        ("negative replicas", with("/workers/replicas", json!(-1)), "spec.workers.replicas"),
        ("an unknown mode", with("/reaping", json!({"mode": "Kill"})), "Enforce"),
        (
            "a timeout below a beat",
            with("/reaping", json!({"heartbeatTimeoutSeconds": 3})),
            "spec.reaping.heartbeatTimeoutSeconds",
        ),
        (
            "an outsider timeout below a beat",
            with("/reaping", json!({"outsiderTimeoutSeconds": 3})),
            "must be 0 (never) or at least 6",
        ),
        ("an unknown policy", with("/deletionPolicy", json!("Keep")), "Retain"),
        ("a template without containers", with("/workers/template", json!({"spec": {}})), "containers"),
    ] {
        let refused = create(&namespace, spec).await.expect_err(what);
        let text = refused.to_string();
        assert!(text.contains(says), "{what}: expected {says:?} in {text}");
    }
    namespace.delete().await;
}

#[tokio::test]
async fn every_name_that_an_object_may_have_can_be_a_target() {
    let namespace = TestNamespace::new("targets").await;
    for (field, value) in [
        ("name", "w"),
        ("name", "7-mail.worker-2"),
        ("name", &"a".repeat(253)),
        ("kind", "StatefulSet"),
        ("kind", "Rollout"),
        ("apiVersion", "v1"),
        ("apiVersion", "apps/v1"),
        ("apiVersion", "argoproj.io/v1alpha1"),
    ] {
        namespace.job_queue("good", target_with(field, value)).await.expect(value);
    }
    namespace.delete().await;
}

#[tokio::test]
async fn the_redis_namespace_can_not_be_changed() {
    let namespace = TestNamespace::new("immutable").await;
    namespace.job_queue("mail", good()).await.expect("taken");
    let refused =
        namespace.job_queue("mail", with("/gocraftWork", json!({"namespace": "other"}))).await.expect_err("a change");
    assert!(refused.to_string().contains("make another JobQueue"), "{refused}");
    namespace.delete().await;
}
