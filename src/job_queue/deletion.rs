//! What is awaited and taken back before a `JobQueue` goes.
//!
//! A finalizer is kept where something must happen first: with a template, its pods must have ended and what they held
//! must be given back; with `deletionPolicy: Release`, what was pushed is taken back. Both are bounded: an API object
//! must never hang because a Redis is gone for good.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::api::FINALIZER;
use crate::api::job_queue::{DeletionPolicy, JobQueue};

/// How long pods may take beyond their grace period.
const PODS_BOUND: Duration = Duration::from_secs(60);
/// How long settling and releasing may take once the pods have ended.
const REDIS_BOUND: Duration = Duration::from_secs(45);
/// Kubernetes' grace period where the template names none.
const DEFAULT_GRACE_SECONDS: u64 = 30;

/// Whether the resource needs the finalizer.
#[must_use]
pub fn needs_finalizer(queue: &JobQueue) -> bool {
    has_template(queue) || queue.spec.deletion_policy == DeletionPolicy::Release
}

/// Whether the finalizer is there.
#[must_use]
pub fn has_finalizer(queue: &JobQueue) -> bool {
    queue.finalizers().iter().any(|name| name == FINALIZER)
}

fn has_template(queue: &JobQueue) -> bool {
    queue.spec.workers.as_ref().is_some_and(|workers| workers.template.is_some())
}

/// What is known while a resource is being deleted.
#[derive(Debug, Clone, Copy)]
pub struct Farewell {
    /// How long the deletion has been known.
    pub since_asked: Duration,
    /// How long all pods have been seen ended; `None` while some run.
    pub since_pods_ended: Option<Duration>,
    /// The template's grace period, or the default.
    pub grace: Duration,
    /// Whether pools of this queue's pods are still known in Redis and not settled.
    pub pools_left: bool,
    /// Whether Redis answered the last pass.
    pub redis_answers: bool,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Wait for pods, or for their pools to be settled.
    Wait,
    /// Take back what is to be taken back, then let the resource go.
    Release,
    /// Let the resource go without: Redis did not answer in time. It is logged and counted.
    Abandon,
}

/// Decides.
#[must_use]
pub fn next(farewell: &Farewell) -> Next {
    let pods_overdue = farewell.since_asked >= farewell.grace + PODS_BOUND;
    let since = match farewell.since_pods_ended {
        Some(since) => since,
        None if pods_overdue => farewell.since_asked.saturating_sub(farewell.grace + PODS_BOUND),
        None => return Next::Wait,
    };
    let overdue = since >= REDIS_BOUND;
    match (farewell.redis_answers, farewell.pools_left) {
        (true, false) => Next::Release,
        (true, true) if overdue => Next::Release,
        (false, _) if overdue => Next::Abandon,
        _ => Next::Wait,
    }
}

/// The grace period of the template's pods. Pods of a scale target are not awaited: they are not deleted with the queue.
#[must_use]
pub fn grace(queue: &JobQueue) -> Duration {
    let template = queue.spec.workers.as_ref().and_then(|workers| workers.template.as_ref());
    let seconds = template.map(|template| {
        template
            .0
            .pointer("/spec/terminationGracePeriodSeconds")
            .and_then(serde_json::Value::as_u64)
            .unwrap_or(DEFAULT_GRACE_SECONDS)
    });
    Duration::from_secs(seconds.unwrap_or(0))
}

/// Adds or takes away our finalizer and nobody else's. The patch is refused by the API server if the list has changed
/// since it was read, and then made anew at the next pass.
pub async fn set_finalizer(client: &Client, queue: &JobQueue, wanted: bool) -> Result<(), kube::Error> {
    if has_finalizer(queue) == wanted {
        return Ok(());
    }
    let mut finalizers = queue.finalizers().to_vec();
    if wanted {
        finalizers.push(FINALIZER.into());
    } else {
        finalizers.retain(|name| name != FINALIZER);
    }
    let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": queue.resource_version()}});
    let api = Api::<JobQueue>::namespaced(client.clone(), &queue.namespace().unwrap_or_default());
    match api.patch_metadata(&queue.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 && !wanted => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64) -> Farewell {
        Farewell {
            since_asked: Duration::from_secs(seconds),
            since_pods_ended: None,
            grace: Duration::from_secs(30),
            pools_left: true,
            redis_answers: true,
        }
    }

    #[test]
    fn every_wait_has_an_end() {
        let ended = |seconds| Some(Duration::from_secs(seconds));
        for (what, farewell, expected) in [
            ("pods in their grace period", after(20), Next::Wait),
            ("pods late", after(80), Next::Wait),
            ("pods never end, Redis answers", after(30 + 60 + 45), Next::Release),
            ("pods never end, no Redis", Farewell { redis_answers: false, ..after(30 + 60 + 45) }, Next::Abandon),
            ("pods ended, pools not settled", Farewell { since_pods_ended: ended(3), ..after(40) }, Next::Wait),
            ("all settled", Farewell { since_pods_ended: ended(3), pools_left: false, ..after(40) }, Next::Release),
            ("pools never settle", Farewell { since_pods_ended: ended(45), ..after(90) }, Next::Release),
            (
                "Redis away for a moment",
                Farewell { since_pods_ended: ended(10), redis_answers: false, ..after(40) },
                Next::Wait,
            ),
            (
                "c49: Redis gone for good",
                Farewell { since_pods_ended: ended(45), redis_answers: false, ..after(45) },
                Next::Abandon,
            ),
        ] {
            assert_eq!(next(&farewell), expected, "{what}");
        }
    }
}
