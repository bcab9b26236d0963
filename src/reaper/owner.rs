//! Which pods are a queue's workers: by the scale target's selector and owner, never by a name's prefix.
//!
//! - [`target`]: the scale target, read through its scale subresource.
//! - [`selector`]: its selector.
//! - [`queue_pods`]: the pods of one queue, kept up to date from the index.
//!
//! A Deployment's pods belong to a `ReplicaSet`, so that one has to be read to know whose they are: [`OwnerCache`].

pub mod queue_pods;
pub mod selector;
pub mod target;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use tracing::warn;

pub use queue_pods::QueuePods;
pub use target::{ResolvedTarget, TargetError};

use crate::reaper::pods::WorkerPod;

/// How many `ReplicaSet`s are remembered at most.
const CACHED: usize = 50_000;
/// The label by which a Deployment tells its `ReplicaSet`s apart.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// Whose a pod is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ownership {
    /// The target's.
    Yes,
    /// Somebody else's.
    No,
    /// It depends on a `ReplicaSet` that was not read yet.
    Depends(ReplicaSetRef),
}

/// A `ReplicaSet` to be read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReplicaSetRef {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its uid.
    pub uid: Arc<str>,
}

/// What is known of a `ReplicaSet`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaSetOwner {
    /// The uid of the object that controls it.
    ControlledBy(Arc<str>),
    /// Nobody controls it.
    Free,
    /// It is gone, or may not be read.
    Unreadable,
}

/// The `ReplicaSet`s that were read, by uid; a controller never changes.
#[derive(Debug, Default)]
pub struct OwnerCache(Mutex<HashMap<Arc<str>, ReplicaSetOwner>>);

impl OwnerCache {
    /// An empty cache, to be shared by all queues.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// What is known of the `ReplicaSet` with this uid.
    #[must_use]
    pub fn get(&self, uid: &str) -> Option<ReplicaSetOwner> {
        self.lock().get(uid).cloned()
    }

    /// Remembers a `ReplicaSet`.
    pub fn put(&self, uid: Arc<str>, owner: ReplicaSetOwner) {
        let mut cached = self.lock();
        if cached.len() >= CACHED {
            cached.clear();
        }
        cached.insert(uid, owner);
    }

    /// Reads `ReplicaSet`s. One that is gone, or that we have no right to read, is remembered as such; any other
    /// failure is left to be tried again.
    pub async fn read(&self, client: &Client, wanted: &[ReplicaSetRef]) {
        for one in wanted {
            if self.get(&one.uid).is_some() {
                continue;
            }
            let api: Api<PartialObjectMeta<ReplicaSet>> = Api::namespaced(client.clone(), &one.namespace);
            match api.get_opt(&one.name).await {
                Ok(found) => {
                    let found = found.filter(|set| set.metadata.uid.as_deref() == Some(&one.uid));
                    self.put(one.uid.clone(), controller_of(found.as_ref()));
                }
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    warn!(
                        namespace = &*one.namespace,
                        name = &*one.name,
                        "no right to get replicasets in group apps; pods are told by selector alone"
                    );
                    self.put(one.uid.clone(), ReplicaSetOwner::Unreadable);
                }
                Err(error) => warn!(%error, name = &*one.name, "a ReplicaSet could not be read; tried again later"),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, ReplicaSetOwner>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn controller_of(set: Option<&PartialObjectMeta<ReplicaSet>>) -> ReplicaSetOwner {
    let Some(set) = set else { return ReplicaSetOwner::Unreadable };
    let mut owners = set.metadata.owner_references.iter().flatten();
    match owners.find(|owner| owner.controller == Some(true)) {
        Some(owner) => ReplicaSetOwner::ControlledBy(owner.uid.as_str().into()),
        None => ReplicaSetOwner::Free,
    }
}

/// Whose a pod is, as far as the cache can tell.
///
/// A `ReplicaSet` that is gone, or unreadable, counts as the target's where the selector matches and the pod has the
/// hash that only Deployments write. The pods of kinds outside of `apps/v1`, whose chain of owners nobody but their
/// own controller knows, are told by the selector, and by having a controller at all.
#[must_use]
pub fn owns(target: &ResolvedTarget, pod: &WorkerPod, owners: &OwnerCache) -> Ownership {
    if *pod.namespace != *target.namespace || !target.selector.matches(&pod.labels) {
        return Ownership::No;
    }
    let Some(owner) = &pod.owner else { return Ownership::No };
    if *owner.uid == *target.uid || !target.is_apps() {
        return Ownership::Yes;
    }
    if &*owner.kind != "ReplicaSet" || target.kind != "Deployment" {
        return Ownership::No;
    }
    match owners.get(&owner.uid) {
        Some(ReplicaSetOwner::ControlledBy(uid)) if *uid == *target.uid => Ownership::Yes,
        Some(ReplicaSetOwner::Unreadable) if pod.labels.contains_key(TEMPLATE_HASH) => Ownership::Yes,
        Some(_) => Ownership::No,
        None => Ownership::Depends(ReplicaSetRef {
            namespace: pod.namespace.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        }),
    }
}

#[cfg(test)]
mod tests;
