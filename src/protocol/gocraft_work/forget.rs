//! Forgets dead pools whose job types are all settled, and takes back what turned out to be a mistake.
//!
//! The script looks for itself whether anything is left of a pool, so it may be sent right behind the scripts that settle,
//! in the same round trip.

use std::collections::BTreeMap;

use super::fence::{FenceOp, Fenced, fence_checked, speaker_args};
use super::reply::Reply;
use super::settle::{DeadPool, Judged};
use super::{GocraftWork, ScriptError, scripts};
use crate::protocol::{JobTypeName, PoolId};
use crate::redis::{Call, Value};

/// Pools in one run.
const POOLS_PER_RUN: usize = 100;
/// In-progress lists in one run.
const LISTS_PER_RUN: usize = 2_000;

/// What became of one pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgotten {
    /// Nothing of it is left; it is remembered as reaped for a day.
    Forgotten,
    /// There was nothing left of it.
    Gone,
    /// It still has an in-progress list or a lock count: settle first.
    Remains,
    /// Its heartbeat is not what was judged.
    Moved,
}

impl GocraftWork {
    /// The calls that forget dead pools, each with the pools that it is about. They refuse each pool that still has an
    /// in-progress list or a lock count of any of these job types.
    #[must_use]
    pub fn forget_calls<'a>(&self, dead: &'a [DeadPool], job_types: &[JobTypeName]) -> Vec<(&'a [DeadPool], Call)> {
        let per_run = (LISTS_PER_RUN / job_types.len().max(1)).clamp(1, POOLS_PER_RUN);
        dead.chunks(per_run).map(|pools| (pools, self.forget_call(pools, job_types))).collect()
    }

    /// Reads the answer of one of [`Self::forget_calls`], which was about these pools.
    pub fn parse_forgotten(value: Value, pools: &[DeadPool]) -> Result<Vec<(PoolId, Forgotten)>, ScriptError> {
        let parts = fence_checked(Reply::new("forget", value))?;
        let words = parts.into_iter().nth(1).map(Reply::texts).transpose()?.unwrap_or_default();
        let state = |word: &str| match word {
            "forgotten" => Forgotten::Forgotten,
            "gone" => Forgotten::Gone,
            "moved" => Forgotten::Moved,
            _ => Forgotten::Remains,
        };
        Ok(pools.iter().zip(words).map(|(pool, word)| (pool.id.clone(), state(&word))).collect())
    }

    /// Forgets dead pools, in one round trip. Advances the fence where that is all it needs.
    pub async fn forget(
        &self,
        dead: &[DeadPool],
        job_types: &[JobTypeName],
    ) -> Result<BTreeMap<PoolId, Forgotten>, ScriptError> {
        match self.forget_once(dead, job_types).await {
            Err(ScriptError::Fenced(Fenced::Unfenced)) => {
                self.fence(FenceOp::Advance).await?;
                self.forget_once(dead, job_types).await
            }
            states => states,
        }
    }

    async fn forget_once(
        &self,
        dead: &[DeadPool],
        job_types: &[JobTypeName],
    ) -> Result<BTreeMap<PoolId, Forgotten>, ScriptError> {
        let (pools, calls): (Vec<_>, Vec<_>) = self.forget_calls(dead, job_types).into_iter().unzip();
        let (answers, _) = self.client.run_all(calls).await?;
        let mut states = BTreeMap::new();
        for (pools, answer) in pools.into_iter().zip(answers) {
            states.extend(Self::parse_forgotten(answer?, pools)?);
        }
        Ok(states)
    }

    fn forget_call(&self, pools: &[DeadPool], job_types: &[JobTypeName]) -> Call {
        let keys = &self.keys;
        let mut all = vec![keys.worker_pools(), keys.bindings(), keys.reaped()];
        all.extend([keys.fences(), keys.record(), keys.totals()]);
        all.extend(pools.iter().map(|pool| keys.heartbeat(&pool.id)));
        all.extend(job_types.iter().map(|name| keys.lock_info(name)));
        for pool in pools {
            all.extend(job_types.iter().map(|name| keys.in_progress(name, &pool.id)));
        }
        let mut args = speaker_args(&self.speaker);
        args.extend([pools.len().to_string().into(), job_types.len().to_string().into()]);
        for pool in pools {
            args.extend([pool.id.to_bytes(), pool.judged.to_arg(), pool.detail.to_string().into()]);
        }
        Call::script(&scripts::FORGET, all, args)
    }

    /// Takes pools that beat again out of the reaped ones, and records that living workers were taken for dead. Returns
    /// those that were taken out.
    pub async fn unreap(&self, pools: &[(PoolId, serde_json::Value)]) -> Result<Vec<PoolId>, ScriptError> {
        let keys = &self.keys;
        let mut all = vec![keys.reaped(), keys.fences(), keys.record(), keys.totals()];
        let mut args = speaker_args(&self.speaker);
        for (pool, detail) in pools {
            all.push(keys.heartbeat(pool));
            args.extend([pool.to_bytes(), detail.to_string().into()]);
        }
        let parts = self.run_fenced(Call::script(&scripts::UNREAP, all, args), "unreap").await?;
        let taken = parts.into_iter().nth(1).map(Reply::texts).transpose()?.unwrap_or_default();
        Ok(pools.iter().zip(taken).filter(|(_, word)| word == "1").map(|((pool, _), _)| pool.clone()).collect())
    }
}

impl DeadPool {
    /// A pool with a certain proof and nothing to say about it.
    #[must_use]
    pub fn certain(id: PoolId) -> Self {
        Self { id, judged: Judged::Certain, detail: serde_json::Value::Null }
    }
}
