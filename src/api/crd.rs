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
pub fn yaml(crd: &CustomResourceDefinition) -> anyhow::Result<String> {
    // By way of JSON text: numbers that keep their digits have a form of their own that only serde_json understands.
    let json = serde_json::to_string(crd)?;
    let value: serde_yaml::Value = serde_yaml::from_str(&json)?;
    Ok(serde_yaml::to_string(&value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_fits_into_the_annotation_of_a_plain_kubectl_apply() {
        for (file, crd) in definitions() {
            let size = yaml(&crd).unwrap().len();
            assert!(size < 256 * 1024, "{file} has {size} bytes");
        }
    }

    #[test]
    fn our_own_descriptions_stay() {
        let (_, crd) = &definitions()[0];
        let text = yaml(crd).unwrap();
        assert!(text.contains("How many jobs of this type may run at once"));
        assert!(!text.contains("$serde_json"), "a number lost its form");
    }
}
