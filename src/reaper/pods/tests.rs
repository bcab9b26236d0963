//! Pods as the API server sends them, and what is remembered of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::index::PodEvent;
use super::object::PodObject;
use super::{Fate, PodIndex, RunState, WhyUnknown, WorkerPod};
use crate::protocol::EpochSeconds;

fn read(pod: &Value) -> PodObject {
    serde_json::from_str(&pod.to_string()).unwrap()
}

fn pod_in(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": namespace, "uid": format!("uid-{namespace}-{name}"), "resourceVersion": "7",
            "labels": {"app": "mail"},
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "o"},
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "mail-5d", "uid": "rs", "controller": true}
            ]
        },
        "spec": {
            "nodeName": "node-1", "terminationGracePeriodSeconds": 30,
            "initContainers": [{"name": "proxy", "restartPolicy": "Always"}, {"name": "setup"}],
            "containers": [{"name": "worker", "resources": {"limits": {"cpu": 2}}}, {"name": "log"}]
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null}],
            "initContainerStatuses": [{"name": "proxy", "restartCount": 0, "containerID": "containerd://p",
                                       "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}],
            "containerStatuses": [
                {"name": "worker", "restartCount": 1, "containerID": "containerd://b",
                 "state": {"running": {"startedAt": "1970-01-01T00:01:00Z"}},
                 "lastState": {"terminated": {"containerID": "containerd://a", "exitCode": 137, "reason": "OOMKilled",
                               "startedAt": "1970-01-01T00:00:10Z", "finishedAt": "1970-01-01T00:00:58Z"}}}
            ]
        }
    })
}

fn worker(namespace: &str, name: &str) -> WorkerPod {
    read(&pod_in(namespace, name)).pod.unwrap()
}

#[test]
fn a_pod_is_read_down_to_what_a_verdict_needs() {
    let pod = worker("payments", "mail-5d-x");
    assert_eq!((&*pod.phase, pod.ready, pod.deleting), ("Running", true, false));
    assert_eq!(pod.owner.as_ref().map(|owner| (&*owner.kind, &*owner.uid)), Some(("ReplicaSet", "rs")));
    let names: Vec<&str> = pod.containers.iter().map(|status| &*status.name).collect();
    assert_eq!(names, ["worker", "log"], "neither init containers nor sidecars");
    let status = pod.container("worker").unwrap();
    assert_eq!(status.running().unwrap().started_at, Some(EpochSeconds(60)));
    let end = status.last.as_ref().unwrap().end.as_ref().unwrap();
    assert_eq!((end.finished_at, end.exit_code, &*end.reason), (Some(EpochSeconds(58)), Some(137), "OOMKilled"));
}

#[test]
fn a_container_whose_status_is_unknown_is_not_reported_to_have_ended() {
    let mut pod = pod_in("payments", "x");
    pod["status"]["containerStatuses"][0]["state"] = json!({"terminated": {
        "exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": null, "finishedAt": null}});
    let read = read(&pod).pod.unwrap();
    assert_eq!(read.container("worker").unwrap().current, None);
}

#[test]
fn absent_and_null_fields_are_no_failure_and_a_spoiled_pod_spoils_only_itself() {
    for spare in [json!({}), json!({"spec": null, "status": null}), json!({"status": {"containerStatuses": null}})] {
        let mut pod = json!({"metadata": {"name": "x", "namespace": "n", "uid": "u"}});
        pod.as_object_mut().unwrap().extend(spare.as_object().unwrap().clone());
        assert_eq!(&*read(&pod).pod.unwrap().phase, "Pending");
    }
    let mut spoiled = pod_in("n", "x");
    spoiled["spec"]["containers"] = json!("none");
    let list = json!({"metadata": {"resourceVersion": "1"}, "items": [spoiled, pod_in("n", "y")]});
    let list: kube::core::ObjectList<PodObject> = serde_json::from_str(&list.to_string()).unwrap();
    assert!(list.items[0].pod.as_ref().unwrap_err().contains("none"));
    assert!(list.items[1].pod.is_ok());
    let event = json!({"type": "MODIFIED", "object": pod_in("n", "y")}).to_string();
    let event: kube::core::WatchEvent<PodObject> = serde_json::from_str(&event).unwrap();
    assert!(matches!(event, kube::core::WatchEvent::Modified(object) if object.pod.is_ok()));
}

#[test]
fn an_end_is_final_whatever_a_late_event_says() {
    let now = Instant::now();
    let index = PodIndex::new();
    let new = worker("n", "x");
    let mut old = new.clone();
    let status = &mut old.containers[0];
    status.current = status.last.take();
    status.current.as_mut().unwrap().end = None;
    status.restart_count = 0;
    for pod in [&old, &new, &old, &new] {
        index.apply(PodEvent::Applied(pod.clone()), now);
        let record = index.changes("n", 0).pods.into_values().next().flatten().unwrap();
        let over: Vec<bool> = record.runs.iter().map(|run| run.state.is_over()).collect();
        assert!(over == [false] || over == [true, false], "{over:?}");
    }
    // And where the new state is the first that is seen.
    let index = PodIndex::new();
    index.apply(PodEvent::Applied(new), now);
    index.apply(PodEvent::Applied(old), now);
    let record = index.changes("n", 0).pods.into_values().next().flatten().unwrap();
    assert!(matches!(record.runs[0].state, RunState::Ended { .. }));
    assert_eq!(record.runs[1].state, RunState::Running);
}

#[test]
fn a_list_that_lacks_a_pod_or_cannot_read_it() {
    let now = Instant::now();
    let index = PodIndex::new();
    assert!(!index.synced());
    index.apply(PodEvent::Applied(worker("n", "x")), now);
    assert!(!index.synced(), "only a whole list makes the index complete");
    index.apply(PodEvent::ListBegins, now);
    index.apply(PodEvent::ListedUnreadable { uid: "uid-n-x".into() }, now);
    index.apply(PodEvent::ListEnds, now);
    assert!(index.synced());
    assert_eq!(index.counts(), (1, 0), "it exists, whatever is wrong with it");
    index.apply(PodEvent::ListBegins, now);
    assert_eq!(index.counts(), (1, 0), "nothing is gone before the list is complete");
    index.apply(PodEvent::ListEnds, now);
    assert_eq!(index.counts(), (0, 1));
    let record = index.changes("n", 0).pods.into_values().next().flatten().unwrap();
    assert_eq!(record.fate("worker", "containerd://b"), Fate::Unknown(WhyUnknown::PodGone));
    assert!(matches!(record.fate("worker", "containerd://a"), Fate::Ended { .. }));
    assert_eq!(record.gone.map(|gone| gone.told), Some(false));
}

#[test]
fn a_list_that_breaks_off_and_begins_anew_loses_nobody() {
    let now = Instant::now();
    let index = PodIndex::new();
    for event in [PodEvent::ListBegins, PodEvent::Listed(worker("n", "x")), PodEvent::ListBegins] {
        index.apply(event, now);
    }
    index.apply(PodEvent::Listed(worker("n", "y")), now);
    index.apply(PodEvent::Listed(worker("n", "x")), now);
    index.apply(PodEvent::ListEnds, now);
    assert_eq!(index.counts(), (2, 0));
}

#[test]
fn gone_pods_are_remembered_for_an_hour() {
    let now = Instant::now();
    let index = PodIndex::new();
    index.apply(PodEvent::Deleted(worker("n", "x")), now);
    assert_eq!(index.counts(), (0, 1));
    index.apply(PodEvent::Applied(worker("n", "x")), now);
    assert_eq!(index.counts(), (0, 1), "a uid never comes back");
    let upto = index.changes("n", 0).upto;
    index.apply(PodEvent::Applied(worker("m", "z")), now + Duration::from_secs(3601));
    assert_eq!(index.counts(), (1, 0));
    assert!(matches!(index.changes("n", upto).pods.into_values().next(), Some(None)));
}

#[test]
fn a_reader_gets_what_changed_since_it_looked_or_everything_if_it_fell_behind() {
    let now = Instant::now();
    let index = PodIndex::new();
    for name in ["x", "y"] {
        index.apply(PodEvent::Applied(worker("n", name)), now);
    }
    let all = index.changes("n", 0);
    assert!(all.complete && all.pods.len() == 2);
    assert!(index.changes("n", all.upto).pods.is_empty());
    let mut changed = worker("n", "y");
    changed.deleting = true;
    index.apply(PodEvent::Applied(changed.clone()), now);
    index.apply(PodEvent::Applied(changed.clone()), now);
    let some = index.changes("n", all.upto);
    assert!(!some.complete && some.pods.len() == 1 && some.upto == all.upto + 1);
    for round in 0..5_000 {
        changed.deleting = round % 2 == 0;
        changed.ready = round % 3 == 0;
        index.apply(PodEvent::Applied(changed.clone()), now);
    }
    assert!(index.changes("n", all.upto).complete);
}

#[tokio::test]
async fn only_readers_of_the_namespace_are_told() {
    let now = Instant::now();
    let index = PodIndex::new();
    let (mut here, mut there) = (index.subscribe("n"), index.subscribe("m"));
    index.apply(PodEvent::ListBegins, now);
    index.apply(PodEvent::ListEnds, now);
    tokio::time::timeout(Duration::from_secs(5), index.wait_synced()).await.unwrap();
    assert!(here.has_changed().unwrap() && there.has_changed().unwrap(), "the first list is news for all");
    here.mark_unchanged();
    there.mark_unchanged();
    index.apply(PodEvent::Applied(worker("n", "x")), now);
    assert!(here.has_changed().unwrap() && !there.has_changed().unwrap());
}

#[test]
fn equal_labels_and_words_are_shared() {
    let index = PodIndex::new();
    for name in ["x", "y"] {
        index.apply(PodEvent::Applied(worker("n", name)), Instant::now());
    }
    let records: Vec<_> = index.changes("n", 0).pods.into_values().flatten().collect();
    let [one, other] = [&records[0].pod, &records[1].pod];
    assert!(Arc::ptr_eq(&one.labels, &other.labels));
    assert!(Arc::ptr_eq(&one.namespace, &other.namespace));
    assert!(Arc::ptr_eq(&one.containers[0].name, &other.containers[0].name));
    assert!(Arc::ptr_eq(&one.owner.as_ref().unwrap().uid, &other.owner.as_ref().unwrap().uid));
}
