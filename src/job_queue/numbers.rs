//! Which job types are a queue's own to report and to scale for, and their live numbers.

use std::collections::BTreeSet;

use super::keeper::Keeper;
use super::ownership::{self, CLAIM_LASTS_SECONDS};
use super::scale_facts::oldest_wait;
use crate::metrics::JobLabels;
use crate::protocol::{EpochSeconds, JobTypeName};

/// Job types in a status, so that it fits into etcd; those that the resource names come first.
const JOBS_AT_MOST: usize = 250;
/// Bytes of a job type's name in a status, if the resource does not name it.
const NAME_AT_MOST: usize = 253;

impl Keeper {
    fn named_types(&self) -> BTreeSet<JobTypeName> {
        self.queue.spec.jobs.iter().map(|job| job.name.as_str().into()).collect()
    }

    /// The job types that are this queue's: those that it names and those that its own workers run; all that Redis
    /// knows, where no other queue shares the namespace.
    pub(super) fn all_own_types(&self) -> BTreeSet<JobTypeName> {
        let mut own = self.named_types();
        let (Some(observation), Some(link)) = (&self.reporter.observation, &self.link) else { return own };
        let age = |written: EpochSeconds| observation.redis_time.0.saturating_sub(written.0);
        let alone = !ownership::others(&link.own_claim(), &observation.claims)
            .any(|claim| age(claim.written_at) <= CLAIM_LASTS_SECONDS);
        if alone {
            own.extend(observation.job_types.keys().cloned());
        } else {
            let ours = self.reporter.judgement.pods_of.keys();
            let beats = ours.filter_map(|pool| observation.pools.get(pool)?.heartbeat.as_ref());
            own.extend(beats.flat_map(|beat| beat.job_names.iter().cloned()));
        }
        own
    }

    /// Those that its status and metrics are about: at most [`JOBS_AT_MOST`], the named ones first.
    pub(super) fn own_types(&self) -> BTreeSet<JobTypeName> {
        let (named, mut own) = (self.named_types(), self.all_own_types());
        own.retain(|name| name.as_str().len() <= NAME_AT_MOST || named.contains(name));
        while own.len() > JOBS_AT_MOST.max(named.len()) {
            let Some(last) = own.iter().rev().find(|name| !named.contains(*name)).cloned() else { break };
            own.remove(&last);
        }
        own
    }

    /// Shows a look's numbers, once for each look.
    pub(super) fn show_metrics(&mut self) {
        let Some(observation) = self.reporter.observation.clone() else { return };
        if !std::mem::take(&mut self.reporter.unshown) {
            return;
        }
        let own = self.own_types();
        let metrics = &self.context.metrics;
        let gone: Vec<_> = self.reporter.shown.difference(&own).cloned().collect();
        metrics.forget_jobs(&self.labels, gone.iter().map(JobTypeName::as_str));
        for name in &own {
            let Some(seen) = observation.job_types.get(name) else { continue };
            let labels = JobLabels {
                namespace: self.labels.namespace.clone(),
                jobqueue: self.labels.jobqueue.clone(),
                job: name.as_str().into(),
            };
            metrics.waiting.get_or_create(&labels).set(seen.waiting as i64);
            metrics.running.get_or_create(&labels).set(seen.running() as i64);
            metrics.locks.get_or_create(&labels).set(seen.lock);
            metrics.max_concurrency.get_or_create(&labels).set(seen.cap.unwrap_or(0));
            let wait = oldest_wait(seen, &observation).unwrap_or(0);
            metrics.oldest_wait.get_or_create(&labels).set(wait as f64);
        }
        self.reporter.shown = own;
        match self.scaler.status() {
            Some(scaling) => {
                metrics.desired_replicas.get_or_create(&self.labels).set(i64::from(scaling.desired_replicas));
            }
            None => {
                metrics.desired_replicas.remove(&self.labels);
            }
        }
    }
}
