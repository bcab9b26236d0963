//! Carries out a decision: writes a target's replicas, and marks the pods that are to go last.
//!
//! A write is made on what was just read, and carries that version: whoever changed the target in between is not
//! overwritten, but looked at first.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::api::{FIELD_MANAGER, REPLICAS_MANAGER};
use crate::reaper::owner::ResolvedTarget;
use crate::reaper::owner::target::first_ordinal;
use crate::scaling::pods::is_ours;

/// The annotation by which the `ReplicaSet` controller chooses among pods that are ready and equal otherwise: the
/// lowest cost goes first. Source: kubernetes `pkg/controller/controller_utils.go` (`ActivePodsWithRanks`).
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// What somebody else's deletion cost was, while a busy pod carries ours.
pub const COST_BEFORE: &str = "poolkeeper.dev/pod-deletion-cost-before";
/// Reads and writes of one target: its status moves while its pods come and go.
const TRIES: usize = 3;
/// Pods that are marked at once.
const MARKS_AT_ONCE: usize = 8;

/// What came of a write of replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The target has them.
    Written,
    /// Somebody changed or replaced the target since it was last read: decide anew.
    Moved {
        /// Its uid now.
        uid: String,
        /// Its replicas now.
        replicas: i32,
    },
    /// It took so long that what was decided may no longer hold.
    Late,
    /// Its pods are being replaced: pods of the old kind go by their own rules. Try again later.
    RollingOut,
    /// Its pods begin with another number than was read: read it anew.
    Renumbered,
}

/// Why a target could not be scaled.
#[derive(Debug, thiserror::Error)]
pub enum ScaleError {
    /// The target is gone.
    #[error("spec.workers.scaleTargetRef: {kind} {name} does not exist any more; create it, or correct the name")]
    NotFound {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// A right is missing.
    #[error("poolkeeper may not {verbs} {resource} in group {group:?}; add that rule to its role")]
    Forbidden {
        /// The verbs that are missing.
        verbs: &'static str,
        /// The resource.
        resource: String,
        /// Its group.
        group: String,
    },
    /// The API server refused the number, or a webhook did.
    #[error("the API server refused to scale {kind} {name}: {message}")]
    Refused {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// In the API server's words.
        message: String,
    },
    /// The API server did not answer as it should; tried again.
    #[error("{0}")]
    Failed(String),
}

impl ScaleError {
    /// The condition's reason.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "TargetNotFound",
            Self::Forbidden { .. } => "ScaleForbidden",
            Self::Refused { .. } => "ScaleRefused",
            Self::Failed(_) => "ScaleFailed",
        }
    }

    /// Whether only a person can mend it.
    #[must_use]
    pub fn stalled(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}

/// Writes the replicas of a target that was last seen with `from`. `careful`: not while a Deployment's pods are being
/// replaced, nor where a `StatefulSet`'s begin with another number. `may` is asked right before the write.
pub async fn set_replicas(
    client: &Client,
    target: &ResolvedTarget,
    from: i32,
    to: i32,
    careful: bool,
    may: impl Fn() -> bool + Send,
) -> Result<Outcome, ScaleError> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &target.namespace, &target.resource);
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    for _ in 0..TRIES {
        let scale = api.get_scale(&target.name).await.map_err(|error| refused(&error, target, "get"))?;
        let uid = scale.metadata.uid.unwrap_or_default();
        let replicas = scale.spec.and_then(|spec| spec.replicas).unwrap_or(0);
        if uid != target.uid || replicas != from {
            return Ok(Outcome::Moved { uid, replicas });
        }
        if careful && target.is_apps() {
            match &*target.kind {
                "Deployment" if is_rolling_out(client, target).await? => return Ok(Outcome::RollingOut),
                "StatefulSet" if is_renumbered(client, target).await? => return Ok(Outcome::Renumbered),
                _ => {}
            }
        }
        if !may() {
            return Ok(Outcome::Late);
        }
        let body = json!({"metadata": {"resourceVersion": scale.metadata.resource_version}, "spec": {"replicas": to}});
        match api.patch_scale(&target.name, &params, &Patch::Merge(&body)).await {
            Ok(_) => return Ok(Outcome::Written),
            // Its status moved in between, or somebody scaled it: that is read anew.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(refused(&error, target, "patch")),
        }
    }
    Err(ScaleError::Failed(format!("{} {} changes faster than it can be scaled", target.kind, target.name)))
}

async fn is_rolling_out(client: &Client, target: &ResolvedTarget) -> Result<bool, ScaleError> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), &target.namespace);
    match api.get(&target.name).await {
        Ok(deployment) => Ok(rolling_out(&deployment)),
        Err(kube::Error::Api(status)) if status.code == 403 => Err(ScaleError::Forbidden {
            verbs: "get",
            resource: target.resource.plural.clone(),
            group: target.resource.group.clone(),
        }),
        Err(error) => Err(refused(&error, target, "get")),
    }
}

/// Without the right to read it whole, its pods were taken to begin with 0 all along.
async fn is_renumbered(client: &Client, target: &ResolvedTarget) -> Result<bool, ScaleError> {
    let api: Api<StatefulSet> = Api::namespaced(client.clone(), &target.namespace);
    match api.get(&target.name).await {
        Ok(set) => Ok(first_ordinal(&set) != target.first_ordinal),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(false),
        Err(error) => Err(refused(&error, target, "get")),
    }
}

/// Whether a Deployment's pods are being replaced by newer ones, or are about to be.
#[must_use]
pub fn rolling_out(deployment: &Deployment) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    let unseen = status.observed_generation.unwrap_or(0) < deployment.metadata.generation.unwrap_or(0);
    unseen || status.replicas.unwrap_or(0) != status.updated_replicas.unwrap_or(0)
}

/// What becomes of a pod's deletion cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// It gets ours.
    Busy {
        /// Which.
        cost: i32,
        /// What it carries.
        before: Before,
    },
    /// Ours goes, and what somebody else gave it comes back.
    Idle,
}

/// The deletion cost of a pod before it gets ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// One of ours: what was kept stays.
    Ours,
    /// None: there is nothing to be given back.
    Nothing,
    /// Somebody else's, which is kept to be given back.
    Theirs(i32),
}

/// Marks pods, by their names. A pod that is gone is passed over, and one that changed meanwhile left to the next round.
pub async fn mark(client: &Client, namespace: &str, marks: BTreeMap<Arc<str>, Mark>) -> Result<(), ScaleError> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let marks = marks.into_iter().map(move |(pod, mark)| {
        let api = api.clone();
        async move { set_cost(&api, &pod, mark).await }
    });
    let mut marked = std::pin::pin!(stream::iter(marks).buffer_unordered(MARKS_AT_ONCE));
    while let Some(result) = marked.next().await {
        match result {
            Ok(()) => {}
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(kube::Error::Api(status)) if status.code == 403 => {
                return Err(ScaleError::Forbidden { verbs: "patch", resource: "pods".into(), group: String::new() });
            }
            Err(error) => return Err(ScaleError::Failed(error.to_string())),
        }
    }
    Ok(())
}

async fn set_cost(api: &Api<Pod>, pod: &str, mark: Mark) -> Result<(), kube::Error> {
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let body = match mark {
        Mark::Busy { cost, before } => {
            let mut annotations = json!({DELETION_COST: cost.to_string()});
            match before {
                Before::Ours => {}
                Before::Nothing => annotations[COST_BEFORE] = Value::Null,
                Before::Theirs(before) => annotations[COST_BEFORE] = before.to_string().into(),
            }
            json!({"metadata": {"annotations": annotations}})
        }
        Mark::Idle => {
            // A patch that changes nothing is a read, for which no further right is needed; webhooks see it all the same.
            let found = api.patch_metadata(pod, &params, &Patch::Merge(json!({}))).await?;
            let of = |name| found.metadata.annotations.as_ref().and_then(|all| all.get(name));
            let mut annotations = json!({COST_BEFORE: Value::Null});
            if of(DELETION_COST).and_then(|cost| cost.parse().ok()).is_some_and(is_ours) {
                annotations[DELETION_COST] = json!(of(COST_BEFORE));
            }
            let version = &found.metadata.resource_version;
            json!({"metadata": {"resourceVersion": version, "annotations": annotations}})
        }
    };
    api.patch_metadata(pod, &params, &Patch::Merge(&body)).await.map(|_| ())
}

/// Who else writes a target's replicas, by the names that writers give themselves; `None` where nobody does, or where
/// it may not be read.
pub async fn rival(client: &Client, target: &ResolvedTarget) -> Option<String> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &target.namespace, &target.resource);
    let found = api.get_metadata(&target.name).await.ok()?;
    last_other_writer(found.metadata.managed_fields.unwrap_or_default())
}

fn last_other_writer(fields: Vec<ManagedFieldsEntry>) -> Option<String> {
    let writes = |entry: &ManagedFieldsEntry| {
        let owned = entry.fields_v1.as_ref().map(|fields| &fields.0["f:spec"]["f:replicas"]);
        owned.is_some_and(|replicas| !replicas.is_null())
            && ![Some(FIELD_MANAGER), Some(REPLICAS_MANAGER)].contains(&entry.manager.as_deref())
    };
    let last = fields.into_iter().filter(writes).max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
    last.and_then(|entry| entry.manager)
}

fn refused(error: &kube::Error, target: &ResolvedTarget, verb: &'static str) -> ScaleError {
    let kube::Error::Api(status) = error else { return ScaleError::Failed(error.to_string()) };
    match status.code {
        403 => ScaleError::Forbidden {
            verbs: verb,
            resource: format!("{}/scale", target.resource.plural),
            group: target.resource.group.clone(),
        },
        404 => ScaleError::NotFound { kind: target.kind.clone(), name: target.name.clone() },
        400 | 422 => ScaleError::Refused {
            kind: target.kind.clone(),
            name: target.name.clone(),
            message: status.message.clone(),
        },
        _ => ScaleError::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_other_writer_of_the_replicas_is_named() {
        let entries = |list: Value| -> Vec<ManagedFieldsEntry> { serde_json::from_value(list).unwrap() };
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        let fields = entries(json!([
            {"manager": "poolkeeper", "time": "2026-01-01T00:00:09Z", "fieldsV1": replicas},
            {"manager": "kubectl", "time": "2026-01-01T00:00:01Z", "fieldsV1": replicas},
            {"manager": "argocd-controller", "time": "2026-01-01T00:00:05Z", "fieldsV1": replicas},
            {"manager": "kube-controller-manager", "time": "2026-01-01T00:00:08Z", "fieldsV1": {"f:status": {}}},
        ]));
        assert_eq!(last_other_writer(fields).as_deref(), Some("argocd-controller"));
        assert_eq!(last_other_writer(entries(json!([{"manager": "poolkeeper", "fieldsV1": replicas}]))), None);
    }

    #[test]
    fn a_rollout_is_told_by_what_the_controller_has_seen_and_made() {
        let deployment = |generation: i64, observed: i64, replicas: i32, updated: i32| -> Deployment {
            serde_json::from_value(json!({
                "metadata": {"generation": generation},
                "status": {"observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated},
            }))
            .unwrap()
        };
        assert!(!rolling_out(&deployment(3, 3, 4, 4)));
        assert!(rolling_out(&deployment(4, 3, 4, 4)), "a change that the controller has not seen");
        assert!(rolling_out(&deployment(4, 4, 5, 1)), "old pods are left");
        assert!(!rolling_out(&deployment(1, 1, 0, 0)));
    }
}
