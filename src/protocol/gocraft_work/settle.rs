//! Settles one job type: gives back what dead pools held, and sets the counts to what runs ("The truth is what runs").

use super::fence::{Fenced, speaker_args};
use super::reply::Reply;
use super::{GocraftWork, ScriptError, scripts};
use crate::protocol::{EpochSeconds, JobTypeName, PoolId};
use crate::redis::{Call, Value};

/// Most entries that one run moves, so that Redis is not blocked for more than 5 ms.
pub const ENTRIES_PER_RUN: u32 = 500;

/// What a verdict on a pool relied on; the script refuses when it is no longer so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// Nothing in Redis: the proof is certain, however fresh the heartbeat.
    Certain,
    /// Silence: the last heartbeat was this one.
    Silent(EpochSeconds),
    /// It has no heartbeat.
    Absent {
        /// Whether the set of worker pools names it all the same.
        listed: bool,
    },
}

impl Judged {
    pub(super) fn to_arg(self) -> Vec<u8> {
        match self {
            Self::Certain => Vec::new(),
            Self::Silent(at) => at.0.to_string().into(),
            Self::Absent { listed: false } => b"-".into(),
            Self::Absent { listed: true } => b"+".into(),
        }
    }
}

/// A dead pool, with what goes into the record about it.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadPool {
    /// The pool.
    pub id: PoolId,
    /// What the verdict relied on.
    pub judged: Judged,
    /// Pod, proof and the like, for the record. No job's content.
    pub detail: serde_json::Value,
}

/// A pool that counts as living.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoveredPool {
    /// The pool.
    pub id: PoolId,
    /// Entries of its in-progress list that nothing runs.
    pub stranded: u64,
}

/// What settling one job type came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// Settled, up to `left` entries of dead pools.
    Done(Report),
    /// The heartbeats of these pools are not what was judged: nothing was changed.
    Moved(Vec<PoolId>),
    /// These pools are known in Redis and were not named: nothing was changed.
    LookAgain(Vec<PoolId>),
}

/// What one run changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Entries moved back to the queue.
    pub moved: u64,
    /// Entries of dead pools still to be moved: run it again.
    pub left: u64,
    /// The lock count before; `None` where the key was absent.
    pub lock_before: Option<i64>,
    /// The lock count after.
    pub lock_after: Option<i64>,
    /// Counts that were wrong beyond what the dead held.
    pub repaired: u64,
    /// For each dead pool, in the order given: jobs moved, locks freed.
    pub by_dead: Vec<(u64, u64)>,
}

impl GocraftWork {
    /// The call that settles one job type, to be sent with others in one round trip. `covered` are all other pools.
    #[must_use]
    pub fn settle_call(&self, job_type: &JobTypeName, dead: &[DeadPool], covered: &[CoveredPool], limit: u32) -> Call {
        let keys = &self.keys;
        let mut all = vec![keys.list(job_type), keys.lock(job_type), keys.lock_info(job_type), keys.worker_pools()];
        all.extend([keys.fences(), keys.record(), keys.totals()]);
        all.extend(dead.iter().map(|pool| keys.in_progress(job_type, &pool.id)));
        all.extend(covered.iter().map(|pool| keys.in_progress(job_type, &pool.id)));
        let judged = dead.iter().filter(|pool| pool.judged != Judged::Certain);
        all.extend(judged.map(|pool| keys.heartbeat(&pool.id)));
        let mut args = speaker_args(&self.speaker);
        args.extend([limit.to_string().into(), job_type.to_bytes()]);
        args.extend([dead.len().to_string().into(), covered.len().to_string().into()]);
        for pool in dead {
            args.extend([pool.id.to_bytes(), pool.judged.to_arg(), pool.detail.to_string().into()]);
        }
        args.extend(covered.iter().map(|pool| pool.id.to_bytes()));
        for (number, pool) in (1..).zip(covered).filter(|(_, pool)| pool.stranded > 0) {
            args.extend([number.to_string().into(), pool.stranded.to_string().into()]);
        }
        Call::script(&scripts::SETTLE, all, args)
    }

    /// Reads the answer of [`Self::settle_call`].
    pub fn parse_settled(value: Value) -> Result<Settled, ScriptError> {
        let reply = Reply::new("settle", value);
        let shape = reply.unexpected("what was settled");
        let parts = super::fence::fence_checked(reply)?;
        let ids = |part: &Reply| -> Result<Vec<PoolId>, ScriptError> {
            Ok(part.clone().texts()?.into_iter().map(Into::into).collect())
        };
        let word = parts.first().map(Reply::text).transpose()?.flatten().unwrap_or_default();
        match (word.as_str(), parts.as_slice()) {
            ("moved", [_, pools]) => Ok(Settled::Moved(ids(pools)?)),
            ("look", [_, pools]) => Ok(Settled::LookAgain(ids(pools)?)),
            ("settled", [_, moved, left, before, after, repaired, jobs, locks]) => {
                let counts = |part: &Reply| -> Result<Vec<u64>, ScriptError> {
                    Ok(part.clone().parts()?.map(|count| count.count()).collect::<Result<_, _>>()?)
                };
                Ok(Settled::Done(Report {
                    moved: moved.count()?,
                    left: left.count()?,
                    lock_before: before.number()?,
                    lock_after: after.number()?,
                    repaired: repaired.count()?,
                    by_dead: counts(jobs)?.into_iter().zip(counts(locks)?).collect(),
                }))
            }
            _ => Err(shape.into()),
        }
    }

    /// Settles one job type, once. Advances the fence where that is all it needs.
    pub async fn settle(
        &self,
        job_type: &JobTypeName,
        dead: &[DeadPool],
        covered: &[CoveredPool],
        limit: u32,
    ) -> Result<Settled, ScriptError> {
        let call = self.settle_call(job_type, dead, covered, limit);
        let (value, _) = self.client.run(call.clone()).await?;
        match Self::parse_settled(value) {
            Err(ScriptError::Fenced(Fenced::Unfenced)) => {
                self.fence(super::FenceOp::Advance).await?;
                Self::parse_settled(self.client.run(call).await?.0)
            }
            settled => settled,
        }
    }
}
