//! Whose a pod is.

use std::sync::Arc;
use std::time::Instant;

use kube::core::{ApiResource, GroupVersionKind};

use super::selector::LabelSelector;
use super::*;
use crate::reaper::pods::index::PodEvent;
use crate::reaper::pods::{Controller, PodIndex};

fn target(group: &str, kind: &str) -> ResolvedTarget {
    ResolvedTarget {
        resource: ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind)),
        kind: kind.into(),
        namespace: "payments".into(),
        name: "mail".into(),
        uid: "target".into(),
        selector: LabelSelector::parse("app=mail").unwrap(),
        selector_text: "app=mail".into(),
        replicas: 1,
        first_ordinal: 0,
    }
}

fn pod(namespace: &str, labels: &[(&str, &str)], owner: Option<(&str, &str)>) -> WorkerPod {
    WorkerPod {
        uid: "pod".into(),
        namespace: namespace.into(),
        name: "mail-5d-x".into(),
        hosts: [].into(),
        phase: "Running".into(),
        reason: None,
        deleting: false,
        ready: true,
        deletion_cost: None,
        labels: Arc::new(labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()),
        owner: owner.map(|(kind, uid)| Controller {
            api_version: "apps/v1".into(),
            kind: kind.into(),
            name: "mail-5d".into(),
            uid: uid.into(),
        }),
        containers: [].into(),
    }
}

#[test]
fn pods_are_told_by_selector_and_owner_never_by_name() {
    let owners = OwnerCache::default();
    owners.put("ours".into(), ReplicaSetOwner::ControlledBy("target".into()));
    owners.put("theirs".into(), ReplicaSetOwner::ControlledBy("other".into()));
    owners.put("free".into(), ReplicaSetOwner::Free);
    owners.put("gone".into(), ReplicaSetOwner::Unreadable);
    let app = &[("app", "mail")][..];
    let hashed = &[("app", "mail"), ("pod-template-hash", "5d")][..];
    let table = [
        ("Deployment", pod("payments", app, Some(("ReplicaSet", "ours"))), Ownership::Yes),
        ("Deployment", pod("payments", app, Some(("ReplicaSet", "theirs"))), Ownership::No),
        ("Deployment", pod("payments", app, Some(("ReplicaSet", "free"))), Ownership::No),
        ("Deployment", pod("payments", hashed, Some(("ReplicaSet", "gone"))), Ownership::Yes),
        ("Deployment", pod("payments", app, Some(("ReplicaSet", "gone"))), Ownership::No),
        ("Deployment", pod("payments", &[("app", "x")], Some(("ReplicaSet", "ours"))), Ownership::No),
        ("Deployment", pod("elsewhere", app, Some(("ReplicaSet", "ours"))), Ownership::No),
        ("Deployment", pod("payments", app, Some(("Job", "job"))), Ownership::No),
        ("Deployment", pod("payments", app, None), Ownership::No),
        ("StatefulSet", pod("payments", app, Some(("StatefulSet", "target"))), Ownership::Yes),
        ("StatefulSet", pod("payments", app, Some(("StatefulSet", "other"))), Ownership::No),
        ("ReplicaSet", pod("payments", app, Some(("ReplicaSet", "target"))), Ownership::Yes),
        ("ReplicaSet", pod("payments", app, Some(("ReplicaSet", "other"))), Ownership::No),
    ];
    for (kind, pod, expected) in table {
        assert_eq!(owns(&target("apps", kind), &pod, &owners), expected, "{kind}: {pod:?}");
    }
    let rollout = target("argoproj.io", "Rollout");
    assert_eq!(owns(&rollout, &pod("payments", app, Some(("ReplicaSet", "any"))), &owners), Ownership::Yes);
    assert_eq!(owns(&rollout, &pod("payments", app, None), &owners), Ownership::No);
}

#[test]
fn a_queue_knows_its_pods_once_every_replica_set_was_read_and_keeps_them() {
    let (index, owners, now) = (PodIndex::new(), OwnerCache::default(), Instant::now());
    let target = target("apps", "Deployment");
    let mut pods = QueuePods::new(&[]);
    assert!(pods.refresh(&index, &target, &owners).is_empty() && !pods.synced(), "no list yet");
    let mut one = pod("payments", &[("app", "mail")], Some(("ReplicaSet", "rs")));
    index.apply(PodEvent::ListBegins, now);
    index.apply(PodEvent::Listed(one.clone()), now);
    index.apply(PodEvent::ListEnds, now);
    let unread = pods.refresh(&index, &target, &owners);
    assert_eq!(unread.iter().map(|set| &*set.uid).collect::<Vec<_>>(), ["rs"]);
    assert!(!pods.synced() && pods.get("pod").is_none());
    owners.put("rs".into(), ReplicaSetOwner::ControlledBy("target".into()));
    assert!(pods.refresh(&index, &target, &owners).is_empty());
    assert!(pods.synced() && pods.get("pod").is_some());
    // Taken out of the selector by hand, and released by its ReplicaSet: its process works on.
    one.labels = Arc::default();
    one.owner = None;
    index.apply(PodEvent::Applied(one), now);
    pods.refresh(&index, &target, &owners);
    assert!(pods.get("pod").is_some_and(|record| record.pod.owner.is_none()));
    // Another target has none of them.
    pods.refresh(&index, &ResolvedTarget { uid: "other".into(), ..target }, &owners);
    assert!(pods.get("pod").is_none());
}
