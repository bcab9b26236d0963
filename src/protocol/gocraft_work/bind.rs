//! Keeps bindings in Redis, so that a restarted operator still has them.

use super::fence::speaker_args;
use super::{GocraftWork, ScriptError, scripts};
use crate::protocol::PoolId;
use crate::reaper::binding::Binding;
use crate::redis::{Call, Failure};

/// Changes in one run.
const PER_RUN: usize = 500;

impl GocraftWork {
    /// Sets bindings and drops those of pools that are known nowhere any more.
    pub async fn bind(&self, set: &[(PoolId, Binding)], drop: &[PoolId]) -> Result<(), ScriptError> {
        for chunk in set.chunks(PER_RUN) {
            self.bind_chunk(chunk, &[]).await?;
        }
        for chunk in drop.chunks(PER_RUN) {
            self.bind_chunk(&[], chunk).await?;
        }
        Ok(())
    }

    async fn bind_chunk(&self, set: &[(PoolId, Binding)], drop: &[PoolId]) -> Result<(), ScriptError> {
        let mut args = speaker_args(&self.speaker);
        args.push(set.len().to_string().into());
        for (pool, binding) in set {
            let text = serde_json::to_vec(binding).map_err(|error| {
                Failure::unexpected(format!("the binding of pool {pool} has no JSON form ({error})"))
            })?;
            args.extend([pool.to_bytes(), text]);
        }
        args.extend(drop.iter().map(PoolId::to_bytes));
        let keys = vec![self.keys.bindings(), self.keys.fences()];
        self.run_fenced(Call::script(&scripts::BIND, keys, args), "bind").await.map(|_| ())
    }
}
