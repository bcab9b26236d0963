//! What watches of the API server tell of Deployments and of their pods, with the moment at which it arrived here.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::{Stream, TryStreamExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

/// Namespace and name of a Deployment, or namespace and `app` of pods.
type Place = (String, String);
/// A number, and since when it was that.
type History = Vec<(Instant, usize)>;

/// Numbers and their histories.
#[derive(Default)]
pub struct Watched {
    numbers: Arc<Numbers>,
    tasks: Vec<AbortOnDropHandle<()>>,
}

#[derive(Default)]
struct Numbers {
    histories: Mutex<HashMap<(Number, Place), History>>,
    changed: Notify,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Number {
    /// A Deployment's `spec.replicas`.
    Replicas,
    /// Pods, those whose end was asked for too.
    Pods,
    /// Pods that are Ready, and whose end was not asked for.
    Ready,
}

impl Watched {
    /// Watches these Deployments from now on.
    pub fn deployments(mut self, deployments: Api<Deployment>, labels: &str) -> Self {
        let (numbers, wanted) = (self.numbers.clone(), watcher::Config::default().labels(labels));
        self.tasks.push(spawn(watcher(deployments, wanted), move |event| {
            if let Event::Apply(one) | Event::InitApply(one) = event {
                let place = (one.namespace().unwrap_or_default(), one.name_any());
                let replicas = one.spec.replicas.unwrap_or(1);
                numbers.note(Number::Replicas, place, replicas.try_into().unwrap_or_default());
            }
        }));
        self
    }

    /// Watches these pods, counted by their label `app`.
    pub fn pods(mut self, pods: Api<Pod>) -> Self {
        let numbers = self.numbers.clone();
        let mut known = BTreeMap::<String, (Place, bool)>::new();
        self.tasks.push(spawn(watcher(pods, watcher::Config::default()), move |event| {
            if let Event::Init = event {
                known.clear();
            }
            let (Event::Apply(pod) | Event::InitApply(pod) | Event::Delete(pod)) = &event else { return };
            let Some(app) = pod.labels().get("app") else { return };
            let place = (pod.namespace().unwrap_or_default(), app.clone());
            match event {
                Event::Delete(_) => known.remove(&pod.name_any()),
                _ => known.insert(pod.name_any(), (place.clone(), is_ready(pod))),
            };
            let here = || known.values().filter(|(at, _)| *at == place);
            let (all, ready) = (here().count(), here().filter(|(_, ready)| *ready).count());
            numbers.note(Number::Pods, place.clone(), all);
            numbers.note(Number::Ready, place, ready);
        }));
        self
    }

    /// The number now, and since when.
    pub fn now(&self, number: Number, namespace: &str, name: &str) -> Option<(Instant, usize)> {
        self.numbers.with(number, namespace, name, |history| history.last().copied())
    }

    /// The most that it has been since then.
    pub fn most(&self, number: Number, namespace: &str, name: &str, since: Instant) -> usize {
        self.spans(number, namespace, name, since).into_iter().map(|(_, number)| number).max().unwrap_or_default()
    }

    /// The number times the seconds for which it was that, since then: pods give pod-seconds.
    pub fn seconds(&self, number: Number, namespace: &str, name: &str, since: Instant) -> f64 {
        self.spans(number, namespace, name, since)
            .into_iter()
            .map(|(span, many)| span.as_secs_f64() * many as f64)
            .sum()
    }

    fn spans(&self, number: Number, namespace: &str, name: &str, since: Instant) -> Vec<(Duration, usize)> {
        let now = Instant::now();
        self.numbers.with(number, namespace, name, |history| {
            let ends = history.iter().skip(1).map(|(at, _)| *at).chain([now]);
            let spans = history.iter().zip(ends).filter(|(_, end)| *end > since);
            spans.map(|((begin, number), end)| (end - since.max(*begin), *number)).collect()
        })
    }

    /// When the number was first at least this much, not counting what was before `since`; `None` after the bound.
    pub async fn reaches(
        &self,
        number: Number,
        namespace: &str,
        name: &str,
        least: usize,
        since: Instant,
        bound: Duration,
    ) -> Option<Instant> {
        self.becomes(number, namespace, name, since, bound, |number| number >= least).await
    }

    /// The same for any condition.
    pub async fn becomes(
        &self,
        number: Number,
        namespace: &str,
        name: &str,
        since: Instant,
        bound: Duration,
        wanted: impl Fn(usize) -> bool,
    ) -> Option<Instant> {
        let found = async {
            loop {
                let changed = self.numbers.changed.notified();
                let first = self.numbers.with(number, namespace, name, |history| {
                    history.iter().find(|(at, number)| *at >= since && wanted(*number)).map(|(at, _)| *at)
                });
                match first {
                    Some(at) => return at,
                    None => changed.await,
                }
            }
        };
        tokio::time::timeout_at((since + bound).into(), found).await.ok()
    }
}

impl Numbers {
    fn note(&self, number: Number, place: Place, value: usize) {
        let now = Instant::now();
        let mut histories = self.histories.lock().expect("no panic while it is held");
        let history = histories.entry((number, place)).or_default();
        if history.last().is_none_or(|(_, last)| *last != value) {
            history.push((now, value));
            drop(histories);
            self.changed.notify_waiters();
        }
    }

    fn with<T: Default>(&self, number: Number, namespace: &str, name: &str, read: impl FnOnce(&History) -> T) -> T {
        let histories = self.histories.lock().expect("no panic while it is held");
        let place = (namespace.to_owned(), name.to_owned());
        histories.get(&(number, place)).map_or_else(T::default, read)
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}

/// Handles a watch's events until the handle is dropped.
fn spawn<K: Send + 'static>(
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    mut handle: impl FnMut(Event<K>) + Send + 'static,
) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut events = std::pin::pin!(events.default_backoff());
        loop {
            match events.try_next().await {
                Ok(Some(event)) => handle(event),
                Ok(None) => return,
                Err(error) => eprintln!("bench: a watch begins anew: {error}"),
            }
        }
    }))
}
