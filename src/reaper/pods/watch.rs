//! Feeds the index from the API server, for as long as the process runs.
//!
//! kube's `watcher` resumes from the last version it saw, lists anew after 410 in the stream, and takes a connection
//! that said nothing for the watch's timeout and 5 s for dead. Not covered by it, and so covered here: a 410 as the
//! answer to starting a watch (it would ask for the same version for ever), a list that never answers, and a change
//! lost on the way for whatever reason (a new list every [`RELIST_EVERY`]).

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use tracing::{debug, warn};

use super::PodIndex;
use super::index::PodEvent;
use super::object::PodObject;

/// How long one watch lasts, in seconds. A connection that died without a word is noticed 5 s later.
const WATCH_SECONDS: u32 = 60;
/// After how long everything is listed anew.
const RELIST_EVERY: Duration = Duration::from_secs(600);
/// Pods of one page of a list: a page is in memory as the API server sent it, with all that nobody reads.
const PAGE: u32 = 100;
/// How long one page of a list may take.
const LIST_STEP: Duration = Duration::from_secs(60);
/// After how many errors in a row everything is listed anew.
const ERRORS_BEFORE_RELIST: u32 = 5;

/// Watches the pods of one namespace, or of all, into the index. Never returns; end it by dropping the future.
pub async fn watch_pods(client: Client, namespace: Option<String>, index: Arc<PodIndex>) {
    let api: Api<PodObject> = match &namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    loop {
        let why = watch_until_relist(&api, &index).await;
        debug!(why, "listing pods anew");
    }
}

async fn watch_until_relist(api: &Api<PodObject>, index: &PodIndex) -> &'static str {
    let config = watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE);
    let mut events = pin!(watcher(api.clone(), config).default_backoff());
    let mut relist_at = tokio::time::Instant::now() + LIST_STEP;
    let mut errors = 0;
    loop {
        let Ok(event) = tokio::time::timeout_at(relist_at, events.next()).await else {
            return "the time has come, or a list did not answer";
        };
        match event {
            Some(Ok(event)) => {
                errors = 0;
                match &event {
                    Event::Init | Event::InitApply(_) => relist_at = tokio::time::Instant::now() + LIST_STEP,
                    Event::InitDone => relist_at = tokio::time::Instant::now() + RELIST_EVERY,
                    Event::Apply(_) | Event::Delete(_) => {}
                }
                take(index, event);
            }
            Some(Err(error)) => {
                warn!(%error, "watching pods failed; it goes on after a pause");
                errors += 1;
                if too_old(&error) {
                    return "the version to resume from is too old";
                }
                if errors >= ERRORS_BEFORE_RELIST {
                    return "too many errors in a row";
                }
            }
            None => return "the watch ended",
        }
    }
}

/// Whether the API server refused to start a watch because the version is too old.
fn too_old(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410)
}

fn take(index: &PodIndex, event: Event<PodObject>) {
    let event = match event {
        Event::Init => PodEvent::ListBegins,
        Event::InitDone => PodEvent::ListEnds,
        Event::InitApply(object) => match readable(object) {
            Ok(pod) => PodEvent::Listed(pod),
            Err(Some(uid)) => PodEvent::ListedUnreadable { uid },
            Err(None) => return,
        },
        Event::Apply(object) => match readable(object) {
            Ok(pod) => PodEvent::Applied(pod),
            Err(_) => return,
        },
        Event::Delete(object) => match readable(object) {
            Ok(pod) => PodEvent::Deleted(pod),
            Err(_) => return,
        },
    };
    index.apply(event, Instant::now());
}

/// The pod, or the uid of one that can't be read, which is logged and skipped.
fn readable(object: PodObject) -> Result<super::WorkerPod, Option<Arc<str>>> {
    let uid = object.meta().uid.as_deref().map(Into::into);
    let (namespace, name) = (object.meta().namespace.clone(), object.meta().name.clone());
    object.pod.map_err(|error| {
        warn!(error, namespace, name, "a pod could not be read and is skipped");
        uid
    })
}
