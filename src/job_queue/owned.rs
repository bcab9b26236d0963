//! Watches the Deployments that templates made, so that one that somebody changed or deleted is made right at once.
//!
//! Only what changes a spec counts: a Deployment's status moves all the time.

use std::collections::HashMap;

use futures::{Stream, StreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tracing::warn;

use crate::api::JOB_QUEUE_LABEL;

/// Namespace and name of a `JobQueue` whose Deployment was changed or deleted.
pub type Owner = (String, String);

/// The owners of changed Deployments, for as long as the process runs. A failing watch goes on by itself.
pub fn changes(client: Client, namespace: Option<&str>) -> impl Stream<Item = Owner> {
    let api: Api<PartialObjectMeta<Deployment>> = match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    let config = watcher::Config::default().labels(JOB_QUEUE_LABEL).timeout(60);
    let mut generations: HashMap<String, i64> = HashMap::new();
    watcher(api, config).default_backoff().filter_map(move |event| {
        let owner = match event {
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                let uid = object.uid().unwrap_or_default();
                let generation = object.metadata.generation.unwrap_or(0);
                let before = generations.insert(uid, generation);
                before.is_some_and(|before| before != generation).then(|| owner(&object)).flatten()
            }
            Ok(watcher::Event::Delete(object)) => {
                generations.remove(&object.uid().unwrap_or_default());
                owner(&object)
            }
            Ok(watcher::Event::Init | watcher::Event::InitDone) => None,
            Err(error) => {
                warn!(%error, "Deployments can't be watched; changes of them are found later");
                None
            }
        };
        std::future::ready(owner)
    })
}

fn owner(object: &PartialObjectMeta<Deployment>) -> Option<Owner> {
    let reference =
        object.owner_references().iter().find(|one| one.controller == Some(true) && one.kind == "JobQueue")?;
    Some((object.namespace()?, reference.name.clone()))
}
