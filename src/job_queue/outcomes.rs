//! What a keeper makes of what its background tasks found.

use kube::ResourceExt;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::background::Done;
use super::keeper::{Keeper, identity, is_paused, settings};
use super::link::Link;
use super::status::{Problem, State};
use crate::reaper::judge::Judge;

impl Keeper {
    /// Takes in what a background task found.
    pub(super) fn take(&mut self, done: Done) {
        match done {
            Done::Access(Ok(endpoint)) => {
                let known = self.link.as_ref().is_some_and(|link| link.endpoint() == &endpoint);
                if !known {
                    info!(redis = %endpoint, "Redis is known");
                    let client = self.context.connections.get(&endpoint);
                    self.link = Some(Link::new(client, &self.context.cluster, &self.queue));
                    // What another server said means nothing here.
                    self.judge = Judge::new(identity(&self.context, &self.queue), settings(&self.queue));
                    self.reporter.forget_looks();
                    self.mismatches.clear();
                    self.forgotten.clear();
                    self.caps.stop();
                    self.scaler.wake.stop();
                    self.redis = State::Pending;
                    self.next_pass = Instant::now();
                }
            }
            Done::Access(Err(error)) => {
                // A Secret that can't be read just now does not make the endpoint wrong that it gave before.
                if self.link.is_none() || !error.transient {
                    self.link = None;
                    self.caps.stop();
                    self.scaler.wake.stop();
                    self.redis = State::Bad(Problem {
                        reason: error.reason.into(),
                        message: error.message,
                        stalled: !error.transient,
                    });
                }
            }
            Done::Target(Ok(target)) => {
                let before = self.target.replace(target);
                self.target_lost = false;
                self.target_read(before.as_ref());
                self.refresh_pods();
                self.next_pass = Instant::now();
            }
            Done::Target(Err(problem)) => {
                if problem.reason == "TargetNotFound" {
                    self.background.apply_again();
                }
                self.target_lost |= problem.stalled;
                if self.target.is_none() || problem.stalled {
                    self.workers = State::Bad(problem);
                }
            }
            Done::ReplicaSets => self.refresh_pods(),
            Done::Deployment(Ok(())) => self.background.look_for_target(),
            Done::Deployment(Err(error)) => {
                warn!(%error, "the workers' Deployment");
                self.workers =
                    State::Bad(Problem { reason: error.reason.into(), message: error.message, stalled: true });
            }
            Done::Finalizer(Ok(())) | Done::Confirmed(Ok(None)) | Done::Marked(Ok(())) => {}
            Done::Finalizer(Err(error)) => warn!(error, "the finalizer could not be changed; trying again"),
            Done::Confirmed(Ok(Some(queue))) => {
                if queue.uid() == self.queue.uid() && !is_paused(&queue) && self.halt.is_none() {
                    if let Some(link) = &mut self.link {
                        link.lift_pause();
                    }
                    self.next_pass = Instant::now();
                }
            }
            Done::Confirmed(Err(error)) => debug!(error, "whether this resource is paused could not be asked"),
            Done::Defect => self.reporter.begin_anew(),
            Done::Written(result) => self.reporter.written(result),
            Done::Events(result) => self.reporter.events_sent(result),
            Done::Scaled(change, result) => self.scaled(&change, result),
            Done::Marked(Err(error)) => self.scaling_failed(&error),
        }
    }
}
