//! The wake-up of a queue that has nothing to do ("From 0 to 1 within a second of the first job"): what the watching
//! connection is to run, and what its answers say.

use std::time::Duration;

use super::observe::second_of;
use super::reply::Reply;
use super::{GocraftWork, scripts};
use crate::protocol::{EpochSeconds, JobTypeName};
use crate::redis::tracking::Watch;
use crate::redis::{Failure, Value};

/// What one run of the script found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Whether jobs wait in any of the lists, paused or not.
    pub waiting: bool,
    /// When the first entry of `scheduled` and `retry` is due, of whichever job type, by Redis's clock; 0 for one that
    /// was due ever since.
    pub first_due: Option<EpochSeconds>,
}

impl GocraftWork {
    /// The script to keep running on the tracker of [`Self::client`], for these job types; [`parse_backlog`] reads its
    /// results. While jobs of the queue run, each fetch is a change, so watch only while nothing waits.
    #[must_use]
    pub fn watch_backlog(&self, job_types: &[JobTypeName], resync: Duration) -> Watch {
        let mut keys: Vec<_> = job_types.iter().map(|name| self.keys.list(name)).collect();
        keys.extend([self.keys.scheduled(), self.keys.retry()]);
        Watch { script: &scripts::BACKLOG, keys, args: Vec::new(), resync }
    }
}

/// Reads the result of one run.
pub fn parse_backlog(value: Value) -> Result<Backlog, Failure> {
    let reply = Reply::new("backlog", value);
    let shape = reply.unexpected("lists and scores");
    let parts: Vec<Reply> = reply.parts()?.collect();
    let [lists, scores] = <[Reply; 2]>::try_from(parts).map_err(|_| shape)?;
    let mut backlog = Backlog::default();
    for list in lists.parts()? {
        backlog.waiting |= list.count()? > 0;
    }
    for score in scores.parts()? {
        let second = match score.text()?.as_deref() {
            Some("-inf") => Some(EpochSeconds(0)),
            score => score.and_then(second_of),
        };
        backlog.first_due = backlog.first_due.into_iter().chain(second).min();
    }
    Ok(backlog)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn any_list_counts_and_the_least_score() {
        let list = Value::Array;
        for (lists, scores, waiting, first_due) in [
            (vec![0, 0], [Value::Nil, Value::Nil], false, None),
            (vec![0, 1], [text("7.5"), text("9")], true, Some(8)),
            (vec![], [Value::Nil, text("9")], false, Some(9)),
            (vec![], [text("9"), text("-inf")], false, Some(0)),
            (vec![], [text("inf"), Value::Nil], false, None),
        ] {
            let lists = list(lists.into_iter().map(Value::Int).collect());
            let value = list(vec![lists, list(scores.into())]);
            let backlog = parse_backlog(value).unwrap();
            assert_eq!((backlog.waiting, backlog.first_due), (waiting, first_due.map(EpochSeconds)));
        }
        assert!(parse_backlog(list(vec![])).is_err());
    }
}
