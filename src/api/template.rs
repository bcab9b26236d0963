//! Pod templates and Deployment strategies inside our resources.
//!
//! They are kept as the JSON that the user wrote: it goes into a Deployment as it is, so a field that is newer than
//! this program survives. Their schema is Kubernetes' own, without its descriptions (350 KB would not fit into a plain
//! `kubectl apply`), and with `null` allowed wherever a field may be absent, as in other manifests.

use k8s_openapi::api::apps::v1::DeploymentStrategy;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A `PodTemplateSpec` as the user wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodTemplateJson(pub Value);

/// A `DeploymentStrategy` as the user wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeploymentStrategyJson(pub Value);

/// Schema of [`PodTemplateJson`].
pub fn pod_template_schema(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = PodTemplateSpec::json_schema(generator);
    if let Some(metadata) = schema.pointer_mut("/properties/metadata") {
        // As in a Deployment's template: only labels and annotations mean something there.
        *metadata = serde_json::json!({
            "type": "object",
            "properties": {
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
                "creationTimestamp": {"type": "string", "format": "date-time"},
                "name": {"type": "string"}, "namespace": {"type": "string"},
            },
        });
    }
    if let Some(spec) = schema.pointer_mut("/properties/spec/properties").and_then(Value::as_object_mut) {
        // No template may have them.
        spec.remove("ephemeralContainers");
    }
    trim(schema, "With template: the pods, as in a Deployment. Their labels get one that names the JobQueue.")
}

/// Schema of [`DeploymentStrategyJson`].
pub fn deployment_strategy_schema(generator: &mut SchemaGenerator) -> Schema {
    trim(
        DeploymentStrategy::json_schema(generator),
        "With template: how its Deployment replaces pods, as in a Deployment.",
    )
}

fn trim(mut schema: Schema, description: &str) -> Schema {
    if let Some(object) = schema.as_object_mut() {
        for value in object.values_mut() {
            trim_value(value);
        }
        allow_null(object);
        object.insert("description".into(), description.into());
    }
    schema
}

fn trim_value(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if object.get("description").is_some_and(Value::is_string) {
                object.remove("description");
            }
            for child in object.values_mut() {
                trim_value(child);
            }
            allow_null(object);
        }
        Value::Array(items) => items.iter_mut().for_each(trim_value),
        _ => {}
    }
}

/// Makes every property that is not required nullable.
fn allow_null(schema: &mut serde_json::Map<String, Value>) {
    let required: Vec<String> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default();
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    for (name, property) in properties {
        if let Value::Object(property) = property
            && (property.contains_key("type") || property.contains_key("x-kubernetes-int-or-string"))
            && !required.contains(name)
        {
            property.insert("nullable".into(), Value::Bool(true));
        }
    }
}
