//! Finds in-progress lists that nothing names: neither the set of pools nor any `lock_info`. The library's own reaper
//! leaves such lists when its requeueing fails. A slow SCAN, a bounded step a call, one round over all keys a minute at
//! the most.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::GocraftWork;
use super::reply::Reply;
use crate::protocol::{JobTypeName, PoolId};
use crate::redis::{Call, Failure};

/// Keys that one step looks at, about.
const STEP: usize = 2_000;
/// From the start of one round to the start of the next, at least.
const ROUND: Duration = Duration::from_secs(60);

/// Where a sweep is.
#[derive(Debug, Default)]
pub struct Sweep {
    cursor: u64,
    began: Option<Instant>,
}

impl Sweep {
    /// Takes one step, if one is due: the in-progress lists found by it.
    pub async fn step(&mut self, work: &GocraftWork) -> Result<BTreeSet<(JobTypeName, PoolId)>, Failure> {
        if self.cursor == 0 {
            if self.began.is_some_and(|began| began.elapsed() < ROUND) {
                return Ok(BTreeSet::new());
            }
            self.began = Some(Instant::now());
        }
        let mut command = ::redis::cmd("SCAN");
        command.arg(self.cursor).arg("MATCH").arg(work.keys().in_progress_pattern()).arg("COUNT").arg(STEP);
        let (value, _) = work.client().run(Call::command(command)).await?;
        let reply = Reply::new("SCAN", value);
        let shape = reply.unexpected("a cursor and keys");
        let mut parts = reply.parts()?;
        let (Some(cursor), Some(keys)) = (parts.next(), parts.next()) else { return Err(shape) };
        self.cursor = cursor.text()?.and_then(|text| text.parse().ok()).ok_or(shape)?;
        Ok(keys.texts()?.iter().filter_map(|key| work.keys().parse_in_progress(key)).collect())
    }

    /// Whether a round is complete and the next not begun.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.cursor == 0 && self.began.is_some()
    }
}
