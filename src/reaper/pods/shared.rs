//! What many pods have in common, kept once: the pods of a workload differ in little but their names.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use super::{Labels, WorkerPod};

/// The labels and words of all pods.
#[derive(Debug, Default)]
pub(super) struct Shared {
    labels: HashSet<Arc<Labels>>,
    words: HashSet<Arc<str>>,
}

impl Shared {
    /// Gives a pod the labels and words that another one has already.
    pub(super) fn share(&mut self, pod: &mut WorkerPod) {
        share(&mut self.labels, &mut pod.labels);
        let owner = pod.owner.iter_mut();
        let owner = owner.flat_map(|owner| [&mut owner.api_version, &mut owner.kind, &mut owner.name, &mut owner.uid]);
        let containers = pod.containers.iter_mut().map(|container| &mut container.name);
        let words = [&mut pod.namespace, &mut pod.phase].into_iter().chain(&mut pod.reason);
        for word in words.chain(owner).chain(containers) {
            share(&mut self.words, word);
        }
    }

    /// Forgets what no pod has any more.
    pub(super) fn forget_unused(&mut self) {
        self.labels.retain(|labels| Arc::strong_count(labels) > 1);
        self.words.retain(|word| Arc::strong_count(word) > 1);
    }
}

fn share<T: Eq + Hash + ?Sized>(kept: &mut HashSet<Arc<T>>, one: &mut Arc<T>) {
    match kept.get(one) {
        Some(same) => one.clone_from(same),
        None => {
            kept.insert(one.clone());
        }
    }
}
