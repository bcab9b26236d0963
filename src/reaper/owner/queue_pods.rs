//! The pods of one queue, kept up to date from the index at the cost of what changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{OwnerCache, Ownership, ReplicaSetRef, ResolvedTarget, owns};
use crate::reaper::pods::index::Change;
use crate::reaper::pods::{PodIndex, PodRecord};

/// The pods that are, or were within the last hour, a queue's workers.
///
/// A pod that was once found to be the queue's stays so, whatever becomes of its labels and owners: its process works
/// on all the same.
#[derive(Debug, Clone, Default)]
pub struct QueuePods {
    target: String,
    upto: Change,
    synced: bool,
    containers: BTreeSet<String>,
    records: BTreeMap<Arc<str>, Arc<PodRecord>>,
    depends: BTreeMap<Arc<str>, Arc<PodRecord>>,
}

impl QueuePods {
    /// No pods yet. `containers` names those that run workers; empty: all.
    #[must_use]
    pub fn new(containers: &[String]) -> Self {
        Self { containers: containers.iter().cloned().collect(), ..Self::default() }
    }

    /// The pods of a queue without workers of its own: none, and that is known.
    #[must_use]
    pub fn none() -> Self {
        Self { synced: true, ..Self::default() }
    }

    /// These pods and no others: for tests, and for tools that read pods themselves.
    #[must_use]
    pub fn of(records: impl IntoIterator<Item = Arc<PodRecord>>, containers: &[String]) -> Self {
        let records = records.into_iter().map(|record| (record.pod.uid.clone(), record)).collect();
        Self { synced: true, records, ..Self::new(containers) }
    }

    /// Whether all pods are known. Until then a missing pod says nothing.
    #[must_use]
    pub fn synced(&self) -> bool {
        self.synced
    }

    /// The pods, gone ones among them, by uid.
    pub fn records(&self) -> impl Iterator<Item = &Arc<PodRecord>> {
        self.records.values()
    }

    /// The pod with this uid.
    #[must_use]
    pub fn get(&self, uid: &str) -> Option<&Arc<PodRecord>> {
        self.records.get(uid)
    }

    /// Whether a container of this name runs workers.
    #[must_use]
    pub fn is_worker(&self, container: &str) -> bool {
        self.containers.is_empty() || self.containers.contains(container)
    }

    /// Takes in what changed. The answer are the `ReplicaSet`s that must be read before all is known; see
    /// [`OwnerCache::read`].
    pub fn refresh(&mut self, index: &PodIndex, target: &ResolvedTarget, owners: &OwnerCache) -> Vec<ReplicaSetRef> {
        if self.target != target.uid {
            *self = Self { containers: std::mem::take(&mut self.containers), ..Self::default() };
            self.target.clone_from(&target.uid);
        }
        let index_synced = index.synced();
        let changes = index.changes(&target.namespace, self.upto);
        if changes.complete {
            self.records.retain(|uid, _| changes.pods.contains_key(uid));
            self.depends.clear();
        }
        self.upto = changes.upto;
        let mut pending = std::mem::take(&mut self.depends);
        for (uid, record) in changes.pods {
            if let Some(record) = record {
                pending.insert(uid, record);
            } else {
                pending.remove(&uid);
                self.records.remove(&uid);
            }
        }
        let mut unread = BTreeMap::new();
        for (uid, record) in pending {
            if let Some(known) = self.records.get_mut(&uid) {
                *known = record;
                continue;
            }
            match owns(target, &record.pod, owners) {
                Ownership::Yes => {
                    self.records.insert(uid, record);
                }
                Ownership::No => {}
                Ownership::Depends(set) => {
                    unread.insert(set.uid.clone(), set);
                    self.depends.insert(uid, record);
                }
            }
        }
        self.synced = index_synced && unread.is_empty();
        unread.into_values().collect()
    }
}
