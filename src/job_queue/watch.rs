//! Starts and ends keepers as `JobQueue`s come and go.
//!
//! Every relist is compared with what is kept, so that a deletion that happened while the watch was down is seen. A
//! resource that can't be read (made under an older definition, say) is logged and skipped; it stalls no other.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error, info, info_span, warn};

use super::context::Context;
use super::keeper::{Desired, Keeper};
use super::owned;
use crate::api::job_queue::JobQueue;

/// A keeper that panicked is started again after this time.
const RESTART_AFTER: Duration = Duration::from_secs(5);
/// A watch that says nothing is renewed after this time, so that a black-holed connection is found out.
const WATCH_SECONDS: u32 = 60;

/// `JobQueue`s of one page of a list: a page is in memory as the API server sent it.
const PAGE: u32 = 100;

const NOT_WATCHED: &str = "is the definition jobqueues.poolkeeper.dev installed, and may poolkeeper list it?";

type Key = (String, String);

struct Kept {
    uid: String,
    desired: watch::Sender<Desired>,
    nudge: Arc<Notify>,
}

/// The keepers of this process.
struct Keepers {
    context: Arc<Context>,
    kept: HashMap<Key, Kept>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

/// Watches until `stop` is cancelled; returns when every keeper has ended. `seen` turns true at the first full list.
pub async fn run(context: Arc<Context>, namespace: Option<String>, seen: Arc<AtomicBool>, stop: CancellationToken) {
    let api: Api<DeserializeGuard<JobQueue>> = match &namespace {
        Some(namespace) => Api::namespaced(context.client.clone(), namespace),
        None => Api::all(context.client.clone()),
    };
    let mut keepers = Keepers { context, kept: HashMap::new(), tasks: JoinSet::new(), stop: stop.clone() };
    let mut changed = std::pin::pin!(owned::changes(keepers.context.client.clone(), namespace.as_deref()));
    while !stop.is_cancelled() {
        let config = watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE);
        let mut events = std::pin::pin!(watcher(api.clone(), config).default_backoff());
        let mut listed = HashSet::new();
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = stop.cancelled() => break,
                Some(_) = keepers.tasks.join_next() => continue,
                Some(owner) = changed.next() => {
                    keepers.nudge(&owner);
                    continue;
                }
            };
            match event {
                Some(Ok(watcher::Event::Init)) => listed.clear(),
                Some(Ok(watcher::Event::InitApply(object))) => {
                    if let Some(key) = keepers.apply(object) {
                        listed.insert(key);
                    }
                }
                Some(Ok(watcher::Event::InitDone)) => {
                    keepers.retain(&listed);
                    if !seen.swap(true, Ordering::Release) {
                        info!(job_queues = keepers.kept.len(), "all JobQueues are known");
                    }
                }
                Some(Ok(watcher::Event::Apply(object))) => {
                    keepers.apply(object);
                }
                Some(Ok(watcher::Event::Delete(object))) => keepers.delete(&key_of(&object)),
                Some(Err(watcher::Error::WatchStartFailed(kube::Error::Api(status)))) if status.code == 410 => {
                    warn!("the watch over JobQueues is too old; listing anew");
                    break;
                }
                Some(Err(error)) => warn!(%error, hint = NOT_WATCHED, "JobQueues can't be watched; trying again"),
                None => break,
            }
        }
    }
    keepers.kept.clear();
    while keepers.tasks.join_next().await.is_some() {}
}

fn key_of(object: &DeserializeGuard<JobQueue>) -> Key {
    match &object.0 {
        Ok(queue) => (queue.namespace().unwrap_or_default(), queue.name_any()),
        Err(invalid) => {
            (invalid.metadata.namespace.clone().unwrap_or_default(), invalid.metadata.name.clone().unwrap_or_default())
        }
    }
}

impl Keepers {
    fn apply(&mut self, object: DeserializeGuard<JobQueue>) -> Option<Key> {
        let key = key_of(&object);
        match object.0 {
            Ok(mut queue) => {
                // Nobody here reads them, and they are larger than all the rest.
                queue.metadata.managed_fields = None;
                if self.context.leads()
                    && self.kept.get(&key).is_some_and(|kept| Some(&kept.uid) == queue.uid().as_ref())
                {
                    // The keeper that writes it knows it.
                    queue.status = None;
                }
                self.keep(key.clone(), Arc::new(queue));
            }
            Err(invalid) => {
                warn!(namespace = key.0, jobqueue = key.1, error = %invalid.error, "a JobQueue can't be read and is left alone; correct it");
                return self.kept.contains_key(&key).then_some(key);
            }
        }
        Some(key)
    }

    fn keep(&mut self, key: Key, queue: Arc<JobQueue>) {
        let uid = queue.uid().unwrap_or_default();
        if let Some(kept) = self.kept.get(&key)
            && kept.uid == uid
        {
            kept.desired.send_replace(Desired::Present(queue));
            return;
        }
        self.delete(&key);
        let (desired, changes) = watch::channel(Desired::Present(queue));
        let nudge = Arc::new(Notify::new());
        self.tasks.spawn(keep_on(self.context.clone(), key.clone(), changes, nudge.clone(), self.stop.clone()));
        self.kept.insert(key, Kept { uid, desired, nudge });
        self.context.metrics.job_queues.set(self.kept.len() as i64);
    }

    /// Has a Deployment looked at that somebody changed.
    fn nudge(&self, key: &Key) {
        if let Some(kept) = self.kept.get(key) {
            kept.nudge.notify_one();
        }
    }

    fn delete(&mut self, key: &Key) {
        if let Some(kept) = self.kept.remove(key) {
            kept.desired.send_replace(Desired::Gone);
            self.context.metrics.job_queues.set(self.kept.len() as i64);
        }
    }

    fn retain(&mut self, listed: &HashSet<Key>) {
        let gone: Vec<Key> = self.kept.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        for key in gone {
            self.delete(&key);
        }
    }
}

/// Runs a keeper to its end; one that panics is started again, since a defect in one pass must not end the care for good.
async fn keep_on(
    context: Arc<Context>,
    key: Key,
    changes: watch::Receiver<Desired>,
    nudge: Arc<Notify>,
    stop: CancellationToken,
) {
    loop {
        let Some(keeper) = Keeper::new(context.clone(), changes.clone(), nudge.clone()) else { return };
        let span = info_span!("keeper", namespace = key.0, jobqueue = key.1);
        let ended = AssertUnwindSafe(keeper.run(stop.clone()).instrument(span)).catch_unwind().await;
        if ended.is_ok() {
            return;
        }
        error!(
            namespace = key.0,
            jobqueue = key.1,
            "the keeper of this JobQueue failed on a defect of poolkeeper; starting it again"
        );
        tokio::select! { () = stop.cancelled() => return, () = tokio::time::sleep(RESTART_AFTER) => {} }
    }
}
