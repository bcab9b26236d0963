//! The files that install the resources: generated from the types, the same bytes in `crds/` and in the chart.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use super::job_queue::JobQueue;

/// Each definition with the name of its file.
#[must_use]
pub fn definitions() -> Vec<(&'static str, CustomResourceDefinition)> {
    vec![("jobqueues.yaml", with_keep(JobQueue::crd()))]
}

/// Helm must not delete the definition, and with it every resource, when the chart is removed.
fn with_keep(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.metadata.annotations.get_or_insert_default().insert("helm.sh/resource-policy".into(), "keep".into());
    crd
}

/// One definition as YAML.
pub fn yaml(crd: &CustomResourceDefinition) -> Result<String, serde_yaml::Error> {
    serde_yaml::to_string(crd)
}
