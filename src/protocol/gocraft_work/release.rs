//! Lets go of a deleted resource.

use super::cap::Desired;
use super::fence::speaker_args;
use super::reply::Reply;
use super::{GocraftWork, ScriptError, scripts};
use crate::redis::Call;

/// What was taken back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Released {
    /// Caps deleted, because they were still what was pushed.
    pub caps: u64,
    /// Pauses deleted, because they were ours.
    pub pauses: u64,
}

impl GocraftWork {
    /// Drops the claim `claim_field`, takes back what was pushed of `pushed` (empty for the policy Retain), and retires
    /// the speaker's uid for good.
    pub async fn release(&self, claim_field: &str, pushed: &[Desired]) -> Result<Released, ScriptError> {
        let mut keys = vec![self.keys.fences(), self.keys.claims()];
        let mut args = speaker_args(&self.speaker);
        args.push(claim_field.into());
        for one in pushed {
            keys.extend([self.keys.max_concurrency(&one.job_type), self.keys.paused(&one.job_type)]);
            args.push(one.cap.map_or_else(String::new, |cap| cap.to_string()).into());
        }
        let parts = self.run_fenced(Call::script(&scripts::RELEASE, keys, args), "release").await?;
        let count = |at: usize| parts.get(at).map(Reply::count).transpose().map(Option::unwrap_or_default);
        Ok(Released { caps: count(1)?, pauses: count(2)? })
    }
}
