//! All pods of the watch, shared by many readers, and who is told when the pods of a namespace change.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::shared::Shared;
use super::{PodRecord, WorkerPod};

/// How long a pod is remembered after its object is gone.
const GONE_KEPT: Duration = Duration::from_secs(3600);
/// How many gone pods are remembered; the oldest go first.
const GONE_KEPT_COUNT: usize = 20_000;
/// How many changes of one namespace a reader may be behind before it has to read everything anew.
const CHANGES_KEPT: usize = 4096;

/// What the watch says.
#[derive(Debug, Clone)]
pub enum PodEvent {
    /// A list begins.
    ListBegins,
    /// A pod of the list.
    Listed(WorkerPod),
    /// A pod of the list that could not be read: it exists, and that is all we know.
    ListedUnreadable {
        /// Its uid.
        uid: Arc<str>,
    },
    /// The list is complete: whoever was not in it is gone.
    ListEnds,
    /// A pod was added or changed.
    Applied(WorkerPod),
    /// A pod was deleted; its last state.
    Deleted(WorkerPod),
}

/// A change of pods in one namespace, as a number that only grows.
pub type Change = u64;

/// All pods, with those that went within the last hour.
#[derive(Debug, Default)]
pub struct PodIndex {
    inner: Mutex<Inner>,
    synced: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Inner {
    namespaces: HashMap<Arc<str>, Namespace>,
    /// Uids seen since the list began, while one is under way.
    listing: Option<HashSet<Arc<str>>>,
    gone: VecDeque<(Instant, Arc<str>, Arc<str>)>,
    shared: Shared,
}

#[derive(Debug)]
struct Namespace {
    pods: HashMap<Arc<str>, Arc<PodRecord>>,
    changes: VecDeque<(Change, Arc<str>)>,
    last: Change,
    told: watch::Sender<Change>,
}

impl Default for Namespace {
    fn default() -> Self {
        Self { pods: HashMap::new(), changes: VecDeque::new(), last: 0, told: watch::Sender::new(0) }
    }
}

/// What changed in a namespace since a reader last looked.
#[derive(Debug)]
pub struct Changes {
    /// What to ask with the next time.
    pub upto: Change,
    /// Whether `pods` is everything there is, and whoever is not in it must be dropped.
    pub complete: bool,
    /// The changed pods by uid; `None` for one that is no longer remembered.
    pub pods: BTreeMap<Arc<str>, Option<Arc<PodRecord>>>,
}

impl PodIndex {
    /// An empty index, not yet synced.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Whether a list was ever complete. Before that, a pod that is not here may exist all the same.
    #[must_use]
    pub fn synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits until a list was complete.
    pub async fn wait_synced(&self) {
        let mut synced = self.synced.subscribe();
        // The sender lives in self, so that this cannot fail.
        let _ = synced.wait_for(|done| *done).await;
    }

    /// Told of each change in the namespace, several at once where the reader is slow. The first sync counts as a
    /// change of every namespace that somebody subscribed to.
    #[must_use]
    pub fn subscribe(&self, namespace: &str) -> watch::Receiver<Change> {
        self.lock().namespace(namespace).told.subscribe()
    }

    /// What changed in the namespace since `since`; 0 gives all.
    #[must_use]
    pub fn changes(&self, namespace: &str, since: Change) -> Changes {
        let inner = self.lock();
        let Some(space) = inner.namespaces.get(namespace) else {
            return Changes { upto: 0, complete: true, pods: BTreeMap::new() };
        };
        let known =
            since > 0 && since <= space.last && space.changes.front().is_none_or(|(oldest, _)| *oldest <= since + 1);
        let pods = if known {
            let newer = space.changes.iter().rev().take_while(|(change, _)| *change > since);
            newer.map(|(_, uid)| (uid.clone(), space.pods.get(uid).cloned())).collect()
        } else {
            space.pods.iter().map(|(uid, record)| (uid.clone(), Some(record.clone()))).collect()
        };
        Changes { upto: space.last, complete: !known, pods }
    }

    /// How many pods exist, and how many that are gone are remembered.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let inner = self.lock();
        let all: usize = inner.namespaces.values().map(|space| space.pods.len()).sum();
        (all.saturating_sub(inner.gone.len()), inner.gone.len())
    }

    /// Takes in what the watch says.
    pub fn apply(&self, event: PodEvent, now: Instant) {
        let mut touched = HashSet::new();
        let complete = matches!(event, PodEvent::ListEnds);
        let mut inner = self.lock();
        match event {
            PodEvent::ListBegins => inner.listing = Some(HashSet::new()),
            PodEvent::Listed(pod) => {
                if let Some(listing) = &mut inner.listing {
                    listing.insert(pod.uid.clone());
                }
                inner.seen(pod, now, &mut touched);
            }
            PodEvent::ListedUnreadable { uid } => {
                if let Some(listing) = &mut inner.listing {
                    listing.insert(uid);
                }
            }
            PodEvent::ListEnds => {
                if let Some(listed) = inner.listing.take() {
                    inner.drop_unlisted(&listed, now, &mut touched);
                }
                inner.shared.forget_unused();
                touched.extend(inner.namespaces.keys().cloned());
            }
            PodEvent::Applied(pod) => inner.seen(pod, now, &mut touched),
            PodEvent::Deleted(pod) => {
                let (namespace, uid) = (pod.namespace.clone(), pod.uid.clone());
                inner.seen(pod, now, &mut touched);
                inner.depart(&namespace, &uid, true, now);
                touched.insert(namespace);
            }
        }
        inner.expire(now, &mut touched);
        if complete {
            self.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
        }
        for namespace in touched {
            inner.namespace(&namespace).tell();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Namespace {
    fn put(&mut self, uid: &Arc<str>, record: Option<PodRecord>) {
        match record {
            Some(record) => self.pods.insert(uid.clone(), Arc::new(record)),
            None => self.pods.remove(uid),
        };
        self.last += 1;
        self.changes.push_back((self.last, uid.clone()));
        if self.changes.len() > CHANGES_KEPT {
            self.changes.pop_front();
        }
    }

    fn tell(&mut self) {
        self.last = self.last.max(1); // a first list without pods is a change too
        self.told.send_replace(self.last);
    }
}

impl Inner {
    fn namespace(&mut self, name: &str) -> &mut Namespace {
        if !self.namespaces.contains_key(name) {
            self.namespaces.insert(name.into(), Namespace::default());
        }
        self.namespaces.entry(name.into()).or_default()
    }

    fn seen(&mut self, mut pod: WorkerPod, now: Instant, touched: &mut HashSet<Arc<str>>) {
        self.shared.share(&mut pod);
        let (uid, name) = (pod.uid.clone(), pod.namespace.clone());
        let space = self.namespace(&name);
        let record = match space.pods.get(&uid) {
            Some(old) if old.gone.is_some() => return, // uids are never used again: a late event
            Some(old) if *old.pod == pod => return,
            Some(old) => old.advanced(Arc::new(pod), now),
            None => PodRecord::new(Arc::new(pod), now),
        };
        space.put(&uid, Some(record));
        touched.insert(name);
    }

    fn depart(&mut self, namespace: &Arc<str>, uid: &Arc<str>, told: bool, now: Instant) {
        let space = self.namespace(namespace);
        if let Some(record) = space.pods.get(uid).filter(|record| record.gone.is_none()) {
            let departed = record.departed(told, now);
            space.put(uid, Some(departed));
            self.gone.push_back((now, namespace.clone(), uid.clone()));
        }
    }

    fn drop_unlisted(&mut self, listed: &HashSet<Arc<str>>, now: Instant, touched: &mut HashSet<Arc<str>>) {
        let missing: Vec<_> = self
            .namespaces
            .iter()
            .flat_map(|(name, space)| space.pods.values().map(move |record| (name, record)))
            .filter(|(_, record)| record.gone.is_none() && !listed.contains(&record.pod.uid))
            .map(|(name, record)| (name.clone(), record.pod.uid.clone()))
            .collect();
        for (namespace, uid) in missing {
            self.depart(&namespace, &uid, false, now);
            touched.insert(namespace);
        }
    }

    fn expire(&mut self, now: Instant, touched: &mut HashSet<Arc<str>>) {
        while let Some((seen, namespace, uid)) = self.gone.front().cloned() {
            if self.gone.len() <= GONE_KEPT_COUNT && now.saturating_duration_since(seen) < GONE_KEPT {
                return;
            }
            self.gone.pop_front();
            self.namespace(&namespace).put(&uid, None);
            touched.insert(namespace);
        }
    }
}
