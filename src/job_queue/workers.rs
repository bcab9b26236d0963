//! The workers of a `JobQueue`: the Deployment that its template makes, and what may go wrong with it.
//!
//! The Deployment is poolkeeper's by server-side apply. `spec.replicas` is in it only where the resource says a number:
//! whoever else scales it is left alone.

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};

use super::access::api_error;
use crate::api::condition::reason;
use crate::api::job_queue::{JobQueue, ScaleTargetRef, WorkersSpec};
use crate::api::{FIELD_MANAGER, JOB_QUEUE_LABEL, REPLICAS_MANAGER};

/// Why the workers are not as the resource says. The message names the field and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WorkersError {
    /// The condition's reason.
    pub reason: &'static str,
    /// What to tell the user.
    pub message: String,
}

/// What the workers are scaled by: the target that the resource names, or the Deployment made from its template.
#[must_use]
pub fn scale_target(queue: &JobQueue) -> Option<ScaleTargetRef> {
    let workers = queue.spec.workers.as_ref()?;
    if workers.template.is_some() {
        return Some(ScaleTargetRef {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: queue.name_any(),
        });
    }
    workers.scale_target_ref.clone()
}

/// The value of the label that names the queue: its name, shortened where a label can't hold it.
#[must_use]
pub fn label_value(name: &str) -> String {
    if name.len() <= 63 {
        return name.to_owned();
    }
    // FNV-1a, 64 bits: only to tell long names of one beginning apart.
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{}-{hash:016x}", name[..46].trim_end_matches(['-', '.']))
}

/// The Deployment that the template makes, as it is applied. `None` without a template.
#[must_use]
pub fn deployment(queue: &JobQueue) -> Option<Value> {
    let workers: &WorkersSpec = queue.spec.workers.as_ref()?;
    let mut template = without_nulls(&workers.template.as_ref()?.0);
    let label = label_value(&queue.name_any());
    template["metadata"]["labels"][JOB_QUEUE_LABEL] = json!(label);
    let mut spec = json!({"selector": {"matchLabels": {JOB_QUEUE_LABEL: label}}, "template": template});
    if let Some(strategy) = &workers.strategy {
        spec["strategy"] = without_nulls(&strategy.0);
    }
    if let Some(replicas) = workers.replicas {
        spec["replicas"] = json!(replicas);
    }
    Some(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": queue.name_any(),
            "namespace": queue.namespace(),
            "labels": {JOB_QUEUE_LABEL: label, "app.kubernetes.io/managed-by": "poolkeeper"},
            "ownerReferences": [queue.controller_owner_ref(&())],
        },
        "spec": spec,
    }))
}

/// A field that is `null` is a field that is absent, as `kubectl` has it.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, field)| !field.is_null())
            .map(|(name, field)| (name.clone(), without_nulls(field)))
            .collect(),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

/// Applies the Deployment, unless one of that name belongs to somebody else.
///
/// Where the resource no longer says how many, the number that runs is handed over before our field goes: a field that
/// its last owner lets go falls back to its default, which would end all workers but one.
pub async fn apply(client: &Client, queue: &JobQueue) -> Result<(), WorkersError> {
    let Some(mut wanted) = deployment(queue) else { return Ok(()) };
    let (name, namespace) = (queue.name_any(), queue.namespace().unwrap_or_default());
    let api = Api::<Deployment>::namespaced(client.clone(), &namespace);
    let existing = api.get_opt(&name).await.map_err(|error| refused(&error))?;
    if let Some(existing) = &existing
        && !existing
            .owner_references()
            .iter()
            .any(|owner| owner.controller == Some(true) && Some(&owner.uid) == queue.uid().as_ref())
    {
        return Err(WorkersError {
            reason: reason::NAME_TAKEN,
            message: format!(
                "spec.workers.template: a Deployment {name:?} exists that is not this JobQueue's; delete or rename it, or adopt it with spec.workers.scaleTargetRef"
            ),
        });
    }
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let says_how_many = wanted["spec"].get("replicas").is_some();
    let at_first = queue.spec.scaling.as_ref().map(|scaling| scaling.min_replicas);
    let hand_over = match &existing {
        _ if says_how_many => None,
        None => at_first,
        Some(existing) => existing.spec.replicas.filter(|_| owns_replicas(existing)),
    };
    if let Some(replicas) = hand_over {
        if existing.is_none() {
            wanted["spec"]["replicas"] = json!(replicas);
            api.patch(&name, &params, &Patch::Apply(&wanted)).await.map_err(|error| refused(&error))?;
            wanted["spec"].as_object_mut().map(|spec| spec.remove("replicas"));
        }
        let kept = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"replicas": replicas}});
        let keeper = PatchParams::apply(REPLICAS_MANAGER).force();
        api.patch(&name, &keeper, &Patch::Apply(&kept)).await.map_err(|error| refused(&error))?;
    }
    api.patch(&name, &params, &Patch::Apply(&wanted)).await.map_err(|error| refused(&error))?;
    Ok(())
}

/// Whether the number is in what we applied last.
fn owns_replicas(deployment: &Deployment) -> bool {
    deployment.managed_fields().iter().any(|entry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER)
            && entry.operation.as_deref() == Some("Apply")
            && entry.fields_v1.as_ref().is_some_and(|fields| !fields.0["f:spec"]["f:replicas"].is_null())
    })
}

/// Deletes the template's Deployment and, in the background, its pods. One that is not ours is left alone.
pub async fn delete(client: &Client, queue: &JobQueue) -> Result<(), WorkersError> {
    let (name, namespace) = (queue.name_any(), queue.namespace().unwrap_or_default());
    let api = Api::<Deployment>::namespaced(client.clone(), &namespace);
    let Some(existing) = api.get_metadata_opt(&name).await.map_err(|error| refused(&error))? else { return Ok(()) };
    if existing.meta().deletion_timestamp.is_some()
        || !existing.owner_references().iter().any(|owner| Some(&owner.uid) == queue.uid().as_ref())
    {
        return Ok(());
    }
    match api.delete(&name, &DeleteParams::background()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(refused(&error)),
    }
}

fn refused(error: &kube::Error) -> WorkersError {
    let code = if let kube::Error::Api(status) = error { status.code } else { 0 };
    match code {
        403 => WorkersError {
            reason: reason::TEMPLATE_REFUSED,
            message: format!(
                "spec.workers.template: poolkeeper may not manage Deployments here: {}; give its service account apps/deployments get, create, patch, delete",
                api_error(error)
            ),
        },
        _ => WorkersError {
            reason: reason::TEMPLATE_REFUSED,
            message: format!(
                "spec.workers.template: the API server refused the Deployment made from it: {}",
                api_error(error)
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(yaml: &str) -> JobQueue {
        let mut queue: JobQueue = serde_yaml::from_str(&format!(
            "{{apiVersion: poolkeeper.dev/v1alpha1, kind: JobQueue, metadata: {{name: mail, namespace: shop, uid: u1}}, spec: {{gocraftWork: {{namespace: work}}, redis: {{url: 'redis://r'}}, workers: {yaml}}}}}"
        ))
        .unwrap();
        queue.metadata.generation = Some(1);
        queue
    }

    #[test]
    fn a_template_becomes_a_deployment_that_belongs_to_the_queue() {
        let made = deployment(&queue(
            "{template: {metadata: {labels: {app: w}}, spec: {containers: [{name: w, image: i}]}}, replicas: 3}",
        ))
        .unwrap();
        assert_eq!(made["spec"]["replicas"], 3);
        assert_eq!(made["spec"]["template"]["metadata"]["labels"], json!({"app": "w", JOB_QUEUE_LABEL: "mail"}));
        assert_eq!(made["spec"]["selector"]["matchLabels"], json!({JOB_QUEUE_LABEL: "mail"}));
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "u1");
    }

    #[test]
    fn without_a_number_the_replicas_are_left_alone() {
        let made = deployment(&queue("{template: {spec: {containers: [{name: w, image: i}]}}}")).unwrap();
        assert!(made["spec"].get("replicas").is_none());
    }

    #[test]
    fn c15_a_null_field_is_an_absent_field() {
        let made = deployment(&queue("{template: {spec: {nodeName: null, containers: [{name: w, image: i, args: null}]}}, strategy: {type: Recreate, rollingUpdate: null}}")).unwrap();
        assert_eq!(made["spec"]["strategy"], json!({"type": "Recreate"}));
        assert_eq!(made["spec"]["template"]["spec"], json!({"containers": [{"name": "w", "image": "i"}]}));
    }

    #[test]
    fn a_long_name_makes_a_label_that_fits_and_differs() {
        let (a, b) = ("a".repeat(100) + "1", "a".repeat(100) + "2");
        assert!(label_value(&a).len() <= 63);
        assert_ne!(label_value(&a), label_value(&b));
        assert_eq!(label_value("mail"), "mail");
    }
}
