//! The scale target of a queue, read as `HorizontalPodAutoscaler`s read theirs: through `/scale`; a `StatefulSet` itself.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::autoscaling::v1::Scale;
use kube::core::{ApiResource, DynamicObject, GroupVersion, GroupVersionKind, Selector, TypeMeta};
use kube::{Api, Client, discovery};

use super::selector::{LabelSelector, SelectorError};
use crate::api::job_queue::ScaleTargetRef;

/// A scale target as one read showed it.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedTarget {
    /// Its API, for the next read and for scaling.
    pub resource: ApiResource,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Which pods are its.
    pub selector: LabelSelector,
    /// The selector's text, for the status.
    pub selector_text: String,
    /// Replicas that are asked for.
    pub replicas: i32,
    /// The number of a `StatefulSet`'s first pod (`spec.ordinals.start`), as far as we may know; 0 for all others.
    pub first_ordinal: i32,
}

/// What a target says of its pods.
struct Told {
    uid: Option<String>,
    replicas: i32,
    selector: Option<String>,
    first_ordinal: i32,
}

/// Why a scale target can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// There is no such object.
    #[error("scaleTargetRef: {kind} {name} does not exist in namespace {namespace}; create it, or correct the name")]
    NotFound {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// There is no such kind.
    #[error(
        "scaleTargetRef: the cluster has no kind {kind} in {api_version}; correct apiVersion and kind, or install it"
    )]
    UnknownKind {
        /// Its API version.
        api_version: String,
        /// Its kind.
        kind: String,
    },
    /// The kind has no scale subresource.
    #[error("scaleTargetRef: {kind} has no scale subresource; name something that has one, such as a Deployment")]
    NoScale {
        /// Its kind.
        kind: String,
    },
    /// A right is missing.
    #[error(
        "scaleTargetRef: poolkeeper may not get and patch {resource}/scale in group {group:?}; add that rule to its role"
    )]
    Forbidden {
        /// The resource's plural name.
        resource: String,
        /// Its group.
        group: String,
    },
    /// The scale subresource names no selector.
    #[error("scaleTargetRef: {kind} {name} has no selector in its scale status, so its pods can't be told")]
    NoSelector {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The selector can't be read.
    #[error("scaleTargetRef: {0}")]
    BadSelector(#[from] SelectorError),
    /// The API server did not answer as it should; tried again.
    #[error("scaleTargetRef: {0}")]
    Failed(#[source] kube::Error),
}

impl TargetError {
    /// The condition's reason.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } | Self::UnknownKind { .. } => "TargetNotFound",
            Self::NoScale { .. } => "TargetHasNoScale",
            Self::Forbidden { .. } => "ScaleForbidden",
            Self::NoSelector { .. } | Self::BadSelector(_) => "TargetHasNoSelector",
            Self::Failed(_) => "TargetUnreadable",
        }
    }
}

impl ResolvedTarget {
    /// Reads a target. `known` is its API where an earlier read found it, which saves a look into the discovery.
    pub async fn resolve(
        client: &Client,
        target: &ScaleTargetRef,
        namespace: &str,
        known: Option<&ApiResource>,
    ) -> Result<Self, TargetError> {
        let resource = match known {
            Some(resource) if resource.kind == target.kind && resource.api_version == target.api_version => {
                resource.clone()
            }
            _ => api_resource(client, target).await?,
        };
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        let set = stateful_set(client, target, namespace, &resource).await?;
        let told = match set {
            Some(set) => of_stateful_set(set),
            None => of_scale(
                api.get_scale(&target.name).await.map_err(|error| refused(error, target, namespace, &resource))?,
            ),
        };
        let no_selector = || TargetError::NoSelector { kind: target.kind.clone(), name: target.name.clone() };
        let selector_text = told.selector.filter(|text| !text.trim().is_empty()).ok_or_else(no_selector)?;
        Ok(Self {
            selector: LabelSelector::parse(&selector_text)?,
            selector_text,
            resource,
            kind: target.kind.clone(),
            namespace: namespace.to_string(),
            name: target.name.clone(),
            uid: told.uid.unwrap_or_default(),
            replicas: told.replicas,
            first_ordinal: told.first_ordinal,
        })
    }

    /// Whether it is of `apps`, whose owner references are known.
    #[must_use]
    pub fn is_apps(&self) -> bool {
        self.resource.group == "apps"
    }
}

/// A `StatefulSet` is read whole: its scale subresource does not tell by which number its pods begin. `None` for anything
/// else, and where we may read no more than that.
async fn stateful_set(
    client: &Client,
    target: &ScaleTargetRef,
    namespace: &str,
    resource: &ApiResource,
) -> Result<Option<StatefulSet>, TargetError> {
    if resource.group != "apps" || target.kind != "StatefulSet" {
        return Ok(None);
    }
    match Api::<StatefulSet>::namespaced(client.clone(), namespace).get(&target.name).await {
        Ok(set) => Ok(Some(set)),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
        Err(error) => Err(refused(error, target, namespace, resource)),
    }
}

/// The number of its first pod: `spec.ordinals.start`.
#[must_use]
pub fn first_ordinal(set: &StatefulSet) -> i32 {
    set.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0)
}

fn of_stateful_set(set: StatefulSet) -> Told {
    let first_ordinal = first_ordinal(&set);
    let spec = set.spec;
    Told {
        uid: set.metadata.uid,
        replicas: spec.replicas.unwrap_or(1),
        selector: Selector::try_from(spec.selector).ok().map(|selector| selector.to_string()),
        first_ordinal,
    }
}

fn of_scale(scale: Scale) -> Told {
    Told {
        uid: scale.metadata.uid,
        replicas: scale.spec.and_then(|spec| spec.replicas).unwrap_or(0),
        selector: scale.status.and_then(|status| status.selector),
        first_ordinal: 0,
    }
}

async fn api_resource(client: &Client, target: &ScaleTargetRef) -> Result<ApiResource, TargetError> {
    let unknown = || TargetError::UnknownKind { api_version: target.api_version.clone(), kind: target.kind.clone() };
    let types = TypeMeta { api_version: target.api_version.clone(), kind: target.kind.clone() };
    let kind = GroupVersionKind::try_from(&types).map_err(|_| unknown())?;
    if target.api_version == "apps/v1" && matches!(&*target.kind, "Deployment" | "ReplicaSet" | "StatefulSet") {
        return Ok(ApiResource::from_gvk(&kind));
    }
    let version = GroupVersion::gv(&kind.group, &kind.version);
    match discovery::pinned_group(client, &version).await {
        Ok(group) => {
            let found = group.recommended_kind(&target.kind);
            found.map(|(resource, _)| resource).ok_or_else(unknown)
        }
        Err(kube::Error::Discovery(_)) => Err(unknown()),
        Err(kube::Error::Api(status)) if status.code == 404 => Err(unknown()),
        Err(error) => Err(TargetError::Failed(error)),
    }
}

fn refused(error: kube::Error, target: &ScaleTargetRef, namespace: &str, resource: &ApiResource) -> TargetError {
    let kube::Error::Api(status) = &error else { return TargetError::Failed(error) };
    match status.code {
        403 => TargetError::Forbidden { resource: resource.plural.clone(), group: resource.group.clone() },
        // The API server names the object where it is missing, and nothing where the path is.
        404 if status.details.as_ref().is_none_or(|details| details.name.is_empty()) => {
            TargetError::NoScale { kind: target.kind.clone() }
        }
        404 => TargetError::NotFound {
            kind: target.kind.clone(),
            name: target.name.clone(),
            namespace: namespace.to_string(),
        },
        _ => TargetError::Failed(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stateful_set_tells_what_its_scale_would_and_by_which_number_its_pods_begin() {
        let told = |spec: serde_json::Value| {
            let set = json!({"metadata": {"uid": "u"}, "spec": spec});
            of_stateful_set(serde_json::from_value(set).unwrap())
        };
        let expressions = json!([
            {"key": "tier", "operator": "In", "values": ["a", "b"]}, {"key": "legacy", "operator": "DoesNotExist"},
            {"key": "zone", "operator": "NotIn", "values": ["x"]}, {"key": "team", "operator": "Exists"},
        ]);
        let selector = json!({"matchLabels": {"app": "w"}, "matchExpressions": expressions});
        let template = json!({"metadata": {}});
        let full = told(
            json!({"replicas": 3, "ordinals": {"start": 5}, "selector": selector, "serviceName": "w", "template": template}),
        );
        let least = told(json!({"selector": {"matchLabels": {"app": "w"}}, "serviceName": "w", "template": template}));
        assert_eq!((full.uid.as_deref(), full.replicas, full.first_ordinal), (Some("u"), 3, 5));
        let text = full.selector.unwrap();
        assert_eq!(text, "app=w,tier in (a,b),!legacy,zone notin (x),team");
        assert!(LabelSelector::parse(&text).is_ok());
        assert_eq!((least.replicas, least.first_ordinal, least.selector.as_deref()), (1, 0, Some("app=w")));
    }
}
