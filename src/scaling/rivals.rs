//! Who else would scale a target: other autoscalers, and other `JobQueue`s.
//!
//! `HorizontalPodAutoscaler`s and `ScaledObject`s are listed for all queues together, since most clusters have few of
//! them. Where one names a target, poolkeeper keeps its hands off: two that size one target by different rules make it
//! jump. Of two `JobQueue`s that name one target, the older one scales it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client, ResourceExt};
use tokio::sync::Notify;
use tracing::warn;

/// How often autoscalers are listed while any queue scales something.
const LIST_EVERY: Duration = Duration::from_secs(30);
/// After a list that failed.
const RETRY: Duration = Duration::from_secs(5);
const AUTOSCALERS: &str = "horizontalpodautoscalers.autoscaling";
const SCALED_OBJECTS: &str = "scaledobjects.keda.sh";
/// From a wish for a new list to the list, so that one answers many wishes.
const SOON: Duration = Duration::from_millis(500);
/// Bound on one page of a list.
const BOUND: Duration = Duration::from_secs(20);
/// Objects of one page.
const PAGE: u32 = 500;

/// What is scaled: anything with a scale subresource. The version does not tell two apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetKey {
    /// Its namespace.
    pub namespace: String,
    /// Its API group.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

impl TargetKey {
    /// From a reference as an autoscaler has it.
    #[must_use]
    pub fn new(namespace: &str, api_version: &str, kind: &str, name: &str) -> Self {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self { namespace: namespace.into(), group: group.into(), kind: kind.into(), name: name.into() }
    }
}

/// A `JobQueue` that would scale a target; the older one comes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claimant {
    /// Epoch seconds of its creation.
    pub created_at: i64,
    /// Its name; the namespace is the target's.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// Who scales a target, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Autoscalers were not listed yet.
    NotKnownYet,
    /// Nobody else.
    Ours,
    /// An autoscaler.
    Autoscaler {
        /// `HorizontalPodAutoscaler` or `ScaledObject`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// An older `JobQueue`.
    OlderQueue {
        /// Its name.
        name: String,
    },
}

type Autoscalers = BTreeMap<TargetKey, (&'static str, String)>;
type Forbidden = BTreeSet<&'static str>;

/// One list of all autoscalers.
#[derive(Debug, Clone)]
struct Listed {
    /// When it was begun: of a claim that is newer it says nothing.
    begun: Instant,
    found: Autoscalers,
    /// What we may not list, as `resource.group`.
    forbidden: Forbidden,
}

/// All who would scale something, shared by all queues of this process.
#[derive(Debug, Default)]
pub struct Rivals {
    claims: Mutex<BTreeMap<TargetKey, BTreeSet<Claimant>>>,
    autoscalers: Mutex<Option<Listed>>,
    wanted: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rivals {
    /// Nothing is known yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A queue would scale a target, until the [`Claim`] is dropped.
    #[must_use]
    pub fn claim(self: &Arc<Self>, target: TargetKey, claimant: Claimant) -> Claim {
        let made = Instant::now();
        lock(&self.claims).entry(target.clone()).or_default().insert(claimant.clone());
        self.wanted.notify_one();
        Claim { rivals: self.clone(), target, claimant, made }
    }

    /// Has autoscalers listed soon, since somebody else seems to scale.
    pub fn look_again(&self) {
        self.wanted.notify_one();
    }

    fn standing(&self, target: &TargetKey, claimant: &Claimant, made: Instant) -> Standing {
        let older = lock(&self.claims).get(target).and_then(|all| all.first().cloned());
        if let Some(older) = older.filter(|older| older != claimant) {
            return Standing::OlderQueue { name: older.name };
        }
        match lock(&self.autoscalers).as_ref().filter(|listed| listed.begun >= made) {
            None => Standing::NotKnownYet,
            Some(known) => known
                .found
                .get(target)
                .map_or(Standing::Ours, |(kind, name)| Standing::Autoscaler { kind, name: name.clone() }),
        }
    }

    /// Lists autoscalers for as long as the process runs, while any queue scales something.
    pub async fn watch(self: Arc<Self>, client: Client, namespace: Option<String>) {
        loop {
            let pause = if lock(&self.claims).is_empty() {
                None
            } else {
                let (begun, before) = (Instant::now(), lock(&self.autoscalers).clone());
                let (before, known) = before.map(|listed| (listed.found, listed.forbidden)).unwrap_or_default();
                match list(&client, namespace.as_deref(), &before).await {
                    Some((found, forbidden)) => {
                        for what in forbidden.difference(&known) {
                            warn!(
                                "poolkeeper may not list {what}: it can't keep its hands off what one of them scales"
                            );
                        }
                        *lock(&self.autoscalers) = Some(Listed { begun, found, forbidden });
                        Some(LIST_EVERY)
                    }
                    None => Some(RETRY),
                }
            };
            let wanted = self.wanted.notified();
            match pause {
                None => wanted.await,
                // Many queues may ask at once, and one list answers all.
                Some(pause) => {
                    let soon = async {
                        wanted.await;
                        tokio::time::sleep(SOON).await;
                    };
                    let _ = tokio::time::timeout(pause, soon).await;
                }
            }
        }
    }
}

/// A queue's wish to scale a target.
#[derive(Debug)]
pub struct Claim {
    rivals: Arc<Rivals>,
    target: TargetKey,
    claimant: Claimant,
    made: Instant,
}

impl Claim {
    /// What it is a claim on.
    #[must_use]
    pub fn target(&self) -> &TargetKey {
        &self.target
    }

    /// Who scales the target.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.rivals.standing(&self.target, &self.claimant, self.made)
    }

    /// The rules that our role lacks to know of all autoscalers, in words.
    #[must_use]
    pub fn missing_rules(&self) -> Vec<String> {
        let listed = lock(&self.rivals.autoscalers);
        let parts = |what: &&'static str| what.split_once('.').unwrap_or((*what, ""));
        let rule = |what| format!("list {} in group {}", parts(what).0, parts(what).1);
        listed.iter().flat_map(|listed| &listed.forbidden).map(rule).collect()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claims = lock(&self.rivals.claims);
        if let Some(all) = claims.get_mut(&self.target) {
            all.remove(&self.claimant);
            if all.is_empty() {
                claims.remove(&self.target);
            }
        }
    }
}

/// All autoscalers by target, and what we may not list; `None` where the API server did not answer. Of what we may not
/// list, those count that were known `before`.
async fn list(client: &Client, namespace: Option<&str>, before: &Autoscalers) -> Option<(Autoscalers, Forbidden)> {
    let keda = ApiResource::from_gvk(&GroupVersionKind::gvk("keda.sh", "v1alpha1", "ScaledObject"));
    let (hpas, scaled): (Api<HorizontalPodAutoscaler>, Api<DynamicObject>) = match namespace {
        Some(namespace) => {
            (Api::namespaced(client.clone(), namespace), Api::namespaced_with(client.clone(), namespace, &keda))
        }
        None => (Api::all(client.clone()), Api::all_with(client.clone(), &keda)),
    };
    let (mut found, mut forbidden) = (Autoscalers::new(), Forbidden::new());
    each(&hpas, AUTOSCALERS, &mut forbidden, |hpa| {
        let target = &hpa.spec.scale_target_ref;
        let version = target.api_version.as_deref().unwrap_or("apps/v1");
        let key = TargetKey::new(&hpa.namespace().unwrap_or_default(), version, &target.kind, &target.name);
        found.insert(key, ("HorizontalPodAutoscaler", hpa.name_any()));
    })
    .await?;
    each(&scaled, SCALED_OBJECTS, &mut forbidden, |object| {
        let target = &object.data["spec"]["scaleTargetRef"];
        let text = |field: &str, default: &'static str| target[field].as_str().unwrap_or(default).to_owned();
        let (version, kind) = (text("apiVersion", "apps/v1"), text("kind", "Deployment"));
        let key = TargetKey::new(&object.namespace().unwrap_or_default(), &version, &kind, &text("name", ""));
        // It is the one that a user wrote; KEDA makes its HorizontalPodAutoscaler from it.
        found.insert(key, ("ScaledObject", object.name_any()));
    })
    .await?;
    if forbidden.contains(SCALED_OBJECTS) && !is_served(client, &keda.api_version).await {
        forbidden.remove(SCALED_OBJECTS);
    }
    keep_unlisted(&mut found, before, &forbidden);
    Some((found, forbidden))
}

/// Whether the cluster has an API at all: without a right, the API server does not tell. If in doubt, it has.
async fn is_served(client: &Client, api_version: &str) -> bool {
    let asked = tokio::time::timeout(BOUND, client.list_api_group_resources(api_version)).await;
    !matches!(asked, Ok(Err(kube::Error::Api(status))) if status.code == 404)
}

/// A right that is taken away for a moment, as while roles are applied anew, makes no autoscaler go away.
fn keep_unlisted(found: &mut Autoscalers, before: &Autoscalers, forbidden: &Forbidden) {
    for (target, (kind, name)) in before {
        let of_kind = if *kind == "ScaledObject" { SCALED_OBJECTS } else { AUTOSCALERS };
        if forbidden.contains(of_kind) {
            found.entry(target.clone()).or_insert((*kind, name.clone()));
        }
    }
}

async fn each<K>(api: &Api<K>, what: &'static str, forbidden: &mut Forbidden, mut take: impl FnMut(&K)) -> Option<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let mut params = ListParams::default().limit(PAGE);
    loop {
        match tokio::time::timeout(BOUND, api.list(&params)).await {
            Ok(Ok(page)) => {
                page.items.iter().for_each(&mut take);
                match page.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => params.continue_token = Some(token),
                    None => return Some(()),
                }
            }
            // Not installed.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return Some(()),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                forbidden.insert(what);
                return Some(());
            }
            Ok(Err(error)) => {
                warn!(%error, "{what} could not be listed; trying again");
                return None;
            }
            Err(_) => {
                warn!("{what} could not be listed in time; trying again");
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(found: Autoscalers, forbidden: &[&'static str]) -> Listed {
        Listed { begun: Instant::now(), found, forbidden: forbidden.iter().copied().collect() }
    }

    #[test]
    fn the_older_queue_scales_and_the_other_follows_when_it_is_gone() {
        let rivals = Rivals::new();
        let target = TargetKey::new("shop", "apps/v1", "Deployment", "mail");
        let claimant = |created_at, name: &str| Claimant { created_at, name: name.into(), uid: name.into() };
        let young = rivals.claim(target.clone(), claimant(20, "a"));
        let listed = || *lock(&rivals.autoscalers) = Some(listed(Autoscalers::new(), &[]));
        listed();
        assert_eq!(young.standing(), Standing::Ours);
        let old = rivals.claim(target.clone(), claimant(10, "b"));
        assert_eq!(old.standing(), Standing::NotKnownYet, "that list is older than the claim");
        listed();
        assert_eq!(young.standing(), Standing::OlderQueue { name: "b".into() });
        assert_eq!(old.standing(), Standing::Ours);
        drop(old);
        assert_eq!(young.standing(), Standing::Ours);
        drop(young);
        assert!(lock(&rivals.claims).is_empty());
    }

    #[test]
    fn nothing_is_ours_before_autoscalers_are_known() {
        let rivals = Rivals::new();
        let target = TargetKey::new("shop", "apps/v1", "Deployment", "mail");
        let claim = rivals.claim(target.clone(), Claimant { created_at: 1, name: "a".into(), uid: "u".into() });
        assert_eq!(claim.standing(), Standing::NotKnownYet);
        let known = Autoscalers::from([(target, ("ScaledObject", "mail-scaler".to_owned()))]);
        *lock(&rivals.autoscalers) = Some(listed(known, &[]));
        assert_eq!(claim.standing(), Standing::Autoscaler { kind: "ScaledObject", name: "mail-scaler".into() });
        assert!(claim.missing_rules().is_empty());
        *lock(&rivals.autoscalers) = Some(listed(Autoscalers::new(), &[AUTOSCALERS]));
        assert_eq!(claim.standing(), Standing::Ours, "as far as is known");
        assert_eq!(claim.missing_rules(), ["list horizontalpodautoscalers in group autoscaling"]);
    }

    #[test]
    fn what_may_not_be_listed_any_more_is_not_gone() {
        let target = |name| TargetKey::new("shop", "apps/v1", "Deployment", name);
        let before = Autoscalers::from([
            (target("a"), ("ScaledObject", "one".to_owned())),
            (target("b"), ("HorizontalPodAutoscaler", "two".to_owned())),
        ]);
        let mut found = Autoscalers::new();
        keep_unlisted(&mut found, &before, &BTreeSet::from([SCALED_OBJECTS]));
        assert_eq!(found.into_keys().collect::<Vec<_>>(), [target("a")]);
    }
}
