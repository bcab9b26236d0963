//! From zero: while a queue has nothing to do, its empty lists are listened to, and its next due entry is waited for.

use std::collections::BTreeSet;
use std::time::Duration;

use super::keeper::Keeper;
use crate::protocol::gocraft_work::backlog::parse_backlog;
use crate::protocol::{EpochSeconds, JobTypeName, Observation};
use crate::redis::tracking::Watching;
use crate::redis::{Failure, Value};
use crate::scaling::JobTypeFacts;

/// How often it is looked within the second before a due time: Redis's clock is known to the second.
pub const DUE_SOON: Duration = Duration::from_millis(100);

/// What is listened to.
#[derive(Debug, Default)]
pub struct Wake {
    watching: Option<(BTreeSet<JobTypeName>, Watching)>,
    first_due: Option<EpochSeconds>,
}

impl Wake {
    /// What the next run of the watch says; never comes while there is none. Cancel-safe.
    pub async fn said(&mut self) -> Result<Value, Failure> {
        match &mut self.watching {
            Some((_, watching)) => watching.next().await,
            None => std::future::pending().await,
        }
    }

    /// Listens no more.
    pub fn stop(&mut self) {
        *self = Self::default();
    }
}

impl Keeper {
    /// Listens for the first job of these types, whose lists are empty; without types, to nothing.
    pub(super) fn listen(&mut self, types: Option<BTreeSet<JobTypeName>>) {
        let (Some(types), Some(link)) = (types, &self.link) else {
            self.scaler.wake.stop();
            return;
        };
        if self.scaler.wake.watching.as_ref().is_some_and(|(watched, _)| *watched == types) {
            return;
        }
        let names: Vec<JobTypeName> = types.iter().cloned().collect();
        let watch = link.work.watch_backlog(&names, self.context.resync);
        self.scaler.wake.watching = Some((types, link.work.client().tracker().watch(watch)));
    }

    /// Takes in what was heard: there may be work now.
    pub(super) fn backlog_changed(&mut self, said: Result<Value, Failure>) {
        // What failed is seen by the passes, which say so.
        let Ok(backlog) = said.and_then(parse_backlog) else { return };
        // An entry of another queue may stay due for days, and is no news then.
        let news = backlog.first_due.is_some() && backlog.first_due != self.scaler.wake.first_due;
        self.scaler.wake.first_due = backlog.first_due;
        if backlog.waiting || news {
            self.next_pass = tokio::time::Instant::now();
        }
    }
}

/// How long until the next entry of one of these job types may be due.
#[must_use]
pub fn due_in(job_types: &[JobTypeFacts], observation: &Observation) -> Option<Duration> {
    let next = job_types
        .iter()
        .filter(|one| !one.paused)
        .filter_map(|one| observation.job_types.get(&one.name)?.next_due_at)
        .min()?;
    let seconds = u64::try_from(next.0.saturating_sub(observation.redis_time.0)).unwrap_or(0);
    Some(Duration::from_secs(seconds.saturating_sub(1)).max(DUE_SOON))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::JobTypeSeen;
    use crate::scaling::tests::stage::job_type;

    #[test]
    fn it_is_looked_often_from_a_second_before_an_entry_is_due() {
        for (now, due, wait) in [(100, 160, Some(59_000)), (159, 160, Some(100)), (100, 101, Some(100))] {
            let seen = JobTypeSeen { next_due_at: Some(EpochSeconds(due)), ..JobTypeSeen::default() };
            let observation = Observation {
                redis_time: EpochSeconds(now),
                job_types: [("mail".into(), seen.into())].into(),
                ..Observation::default()
            };
            let found = due_in(&[job_type("mail"), job_type("sms")], &observation);
            assert_eq!(found, wait.map(Duration::from_millis), "at {now}, due at {due}");
            assert_eq!(due_in(&[job_type("sms")], &observation), None, "what is another queue's is not waited for");
        }
    }
}
