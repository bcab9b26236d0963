//! A keeper's last steps: while its resource is being deleted, and when it is gone.

use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::background::pushed;
use super::deletion;
use super::keeper::Keeper;
use super::link::Link;
use super::status::{Halt, State};

/// How long a release may take when the resource is gone.
const LAST_WORDS_BOUND: Duration = Duration::from_secs(5);

impl Keeper {
    /// While the resource is being deleted: waits, releases, lets go.
    pub(super) fn say_farewell(&mut self) {
        let (Some(Halt::Deleting), Some(asked)) = (self.halt, self.deletion_seen) else { return };
        if !deletion::has_finalizer(&self.queue) || !self.context.leads() {
            return;
        }
        let pods_left = self.pods.records().any(|record| record.gone.is_none() && !record.pod.is_over());
        let known = self.pods.synced() || self.target.is_none();
        if pods_left || !known {
            self.pods_ended_seen = None;
        } else if self.pods_ended_seen.is_none() {
            self.pods_ended_seen = Some(Instant::now());
            self.next_pass = Instant::now();
        }
        let farewell = deletion::Farewell {
            since_asked: asked.elapsed(),
            since_pods_ended: self.pods_ended_seen.map(|seen| seen.elapsed()),
            grace: deletion::grace(&self.queue),
            pools_left: self.reporter.pools_left_since(self.pods_ended_seen),
            redis_answers: matches!(self.redis, State::Good(())),
        };
        match deletion::next(&farewell) {
            deletion::Next::Wait => {}
            deletion::Next::Release => {
                let goodbye = self.link.as_ref().map(Link::goodbye);
                self.background.release(&self.context, self.queue.clone(), goodbye);
            }
            deletion::Next::Abandon => {
                if self.background.release(&self.context, self.queue.clone(), None) {
                    warn!("Redis did not answer: caps and claims of this deleted JobQueue stay in Redis");
                    self.context.metrics.cleanups_abandoned.get_or_create(&self.labels).inc();
                }
            }
        }
    }

    /// When the resource is gone: what replicas that were cut off must not enforce any more is retired.
    pub(super) async fn last_words(&mut self) {
        let Some(link) = self.link.as_ref().filter(|_| !self.context.observe_only) else { return };
        // One that went before it had its finalizer could not wait for its release.
        let pushed = if deletion::has_finalizer(&self.queue) { Vec::new() } else { pushed(&self.queue) };
        let why = match tokio::time::timeout(LAST_WORDS_BOUND, link.goodbye().say(&pushed)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".into(),
        };
        warn!(why, "Redis did not take the goodbye of this deleted JobQueue; its claim lapses by itself");
        if !deletion::needs_finalizer(&self.queue) {
            // Otherwise it was counted when the finalizer went.
            self.context.metrics.cleanups_abandoned.get_or_create(&self.labels).inc();
        }
    }
}
