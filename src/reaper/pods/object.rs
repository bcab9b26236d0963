//! A pod as the watch reads it: only the fields that a verdict needs, so that thousands of pods cost little.
//!
//! One pod that can't be read must not stall the watch: [`PodObject`] reads any JSON object with metadata, and says
//! in [`PodObject::pod`] what was wrong with the rest. (kube's `DeserializeGuard` does so too, but by way of a tree of
//! values for the whole object, each annotation and each managed field among them.)

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::WorkerPod;
use crate::protocol::EpochSeconds;
use crate::reaper::container::{ContainerStatus, Report, TerminatedParts, ended};
use crate::reaper::host::{HostInputs, reported_hosts};
use crate::scaling::apply::DELETION_COST;

/// One pod of the watch.
#[derive(Debug, Clone)]
pub struct PodObject {
    meta: ObjectMeta,
    /// What a verdict needs of it, or why it could not be read.
    pub pod: Result<WorkerPod, String>,
}

impl<'de> Deserialize<'de> for PodObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let mut meta = serde_json::from_str::<MetaPart>(raw.get()).map_err(serde::de::Error::custom)?.metadata;
        meta.managed_fields = None;
        let deletion_cost = meta.annotations.take().and_then(|all| all.get(DELETION_COST)?.parse().ok());
        let pod = serde_json::from_str::<Body>(raw.get())
            .map_err(|error| error.to_string())
            .and_then(|body| worker_pod(&mut meta, body))
            .map(|pod| WorkerPod { deletion_cost, ..pod });
        Ok(Self { meta, pod })
    }
}

impl Resource for PodObject {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

#[derive(Deserialize)]
struct MetaPart {
    metadata: ObjectMeta,
}

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    spec: Option<Spec>,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    containers: Option<Vec<Named>>,
    hostname: Option<String>,
    hostname_override: Option<String>,
    subdomain: Option<String>,
    #[serde(rename = "setHostnameAsFQDN")]
    hostname_as_fqdn: Option<bool>,
    host_network: Option<bool>,
    node_name: Option<String>,
}

#[derive(Deserialize)]
struct Named {
    name: Arc<str>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Option<Arc<str>>,
    reason: Option<Arc<str>>,
    conditions: Option<Vec<Condition>>,
    container_statuses: Option<Vec<RawStatus>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawStatus {
    name: Arc<str>,
    #[serde(rename = "containerID", default)]
    container_id: Option<Arc<str>>,
    #[serde(default)]
    restart_count: Option<i32>,
    #[serde(default)]
    state: Option<RawState>,
    #[serde(default)]
    last_state: Option<RawState>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawState {
    running: Option<RawRunning>,
    terminated: Option<RawTerminated>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawRunning {
    started_at: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawTerminated {
    #[serde(rename = "containerID")]
    container_id: Option<Arc<str>>,
    started_at: Option<String>,
    finished_at: Option<String>,
    reason: Option<Arc<str>>,
    exit_code: Option<i32>,
}

fn worker_pod(meta: &mut ObjectMeta, body: Body) -> Result<WorkerPod, String> {
    let spec = body.spec.unwrap_or_default();
    let status = body.status.unwrap_or_default();
    let uid = meta.uid.as_deref().ok_or("no metadata.uid")?;
    let name = meta.name.as_deref().ok_or("no metadata.name")?;
    let namespace = meta.namespace.as_deref().ok_or("no metadata.namespace")?;
    let hosts = reported_hosts(&HostInputs {
        pod: name,
        namespace,
        hostname: spec.hostname.as_deref(),
        hostname_override: spec.hostname_override.as_deref(),
        subdomain: spec.subdomain.as_deref(),
        hostname_as_fqdn: spec.hostname_as_fqdn.unwrap_or(false),
        host_network: spec.host_network.unwrap_or(false),
        node: spec.node_name.as_deref(),
    });
    let reported: BTreeMap<Arc<str>, RawStatus> =
        status.container_statuses.unwrap_or_default().into_iter().map(|raw| (raw.name.clone(), raw)).collect();
    let containers = merge(spec.containers.unwrap_or_default(), reported);
    let ready = status.conditions.unwrap_or_default().iter().any(|one| one.kind == "Ready" && one.status == "True");
    let owner = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    Ok(WorkerPod {
        uid: uid.into(),
        name: name.into(),
        namespace: namespace.into(),
        hosts: hosts.into(),
        phase: status.phase.unwrap_or_else(|| "Pending".into()),
        reason: status.reason,
        deleting: meta.deletion_timestamp.is_some(),
        ready,
        owner: owner.map(|owner| super::Controller {
            api_version: owner.api_version.as_str().into(),
            kind: owner.kind.as_str().into(),
            name: owner.name.as_str().into(),
            uid: owner.uid.as_str().into(),
        }),
        deletion_cost: None,
        labels: Arc::new(meta.labels.take().unwrap_or_default()),
        containers: containers.into(),
    })
}

/// The containers of the spec, with what the kubelet reported. Init containers, and with them sidecars
/// (`restartPolicy: Always`), are not among `spec.containers`.
fn merge(named: Vec<Named>, mut reported: BTreeMap<Arc<str>, RawStatus>) -> Vec<ContainerStatus> {
    named
        .into_iter()
        .map(|one| match reported.remove(&one.name) {
            Some(raw) => container_status(raw),
            None => ContainerStatus::waiting(one.name),
        })
        .collect()
}

fn container_status(raw: RawStatus) -> ContainerStatus {
    let id = raw.container_id;
    let current = raw.state.and_then(|state| match (state.running, state.terminated) {
        (Some(running), _) => id.clone().filter(|id| !id.is_empty()).map(|id| Report {
            id,
            started_at: epoch(running.started_at.as_deref()),
            end: None,
        }),
        (None, Some(terminated)) => ended(parts(terminated), id.as_ref()),
        (None, None) => None,
    });
    let last = raw.last_state.and_then(|state| state.terminated).and_then(|parts_of| ended(parts(parts_of), None));
    ContainerStatus { name: raw.name, current, last, restart_count: raw.restart_count.unwrap_or(0) }
}

fn parts(raw: RawTerminated) -> TerminatedParts {
    TerminatedParts {
        id: raw.container_id.filter(|id| !id.is_empty()),
        started_at: epoch(raw.started_at.as_deref()),
        finished_at: epoch(raw.finished_at.as_deref()),
        reason: raw.reason.filter(|reason| !reason.is_empty()),
        exit_code: raw.exit_code,
    }
}

/// A time of the API in epoch seconds; an unreadable one, and Go's zero time, count as absent.
fn epoch(text: Option<&str>) -> Option<EpochSeconds> {
    let second = text?.parse::<jiff::Timestamp>().ok()?.as_second();
    (second > 0).then_some(EpochSeconds(second))
}
