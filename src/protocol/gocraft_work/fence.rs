//! The fence: who may write for a resource, and with which version of its spec ("Replicas of the operator").
//!
//! Every writing script carries its [`Speaker`] and is refused, whole, by the entry in Redis. The scripts of
//! [`GocraftWork`] that find no entry, or an older one than the speaker, advance it and try once more.

use super::reply::Reply;
use super::{GocraftWork, ScriptError, scripts};
use crate::protocol::Speaker;
use crate::redis::Call;

/// Why a script was refused by the fence. [`Fenced::as_str`] is fit for logs and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fenced {
    /// No entry yet, or an older one: advance the fence, then try again.
    #[error("the fence in Redis does not know this version of the resource yet")]
    Unfenced,
    /// A newer generation of the resource is enforced already.
    #[error("a newer version of this resource is enforced already; this replica's view of it is old")]
    Older,
    /// The resource was deleted, or deleted and created anew.
    #[error("this resource was deleted, or created anew; this replica's view of it is old")]
    Retired,
    /// The resource is paused by its annotation.
    #[error("this resource is paused by its annotation poolkeeper.dev/paused")]
    Held,
    /// The entry is not ours to understand.
    #[error("the entry of this resource in the hash of fences cannot be read; delete that field")]
    Unreadable,
    /// A newer poolkeeper changed the form of the keys.
    #[error("the keys below poolkeeper: were written by a newer version; upgrade this one")]
    Schema,
}

impl Fenced {
    /// The reason as one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unfenced => "unfenced",
            Self::Older => "older",
            Self::Retired => "retired",
            Self::Held => "held",
            Self::Unreadable => "unreadable",
            Self::Schema => "schema",
        }
    }

    pub(super) fn parse(word: &str) -> Self {
        let all = [Self::Unfenced, Self::Older, Self::Retired, Self::Held, Self::Schema];
        all.into_iter().find(|fenced| fenced.as_str() == word).unwrap_or(Self::Unreadable)
    }
}

/// The state a fence is put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceOp {
    /// This uid and generation are enforced from now on.
    Advance,
    /// As `Advance`, and nobody may write for the resource until it is resumed. To be repeated while the resource is
    /// paused, since a flushed Redis forgets it.
    Hold,
    /// As `Advance`, and writing is allowed again.
    Resume,
    /// The uid is gone for good.
    Retire,
}

impl FenceOp {
    fn as_str(self) -> &'static str {
        match self {
            Self::Advance => "advance",
            Self::Hold => "hold",
            Self::Resume => "resume",
            Self::Retire => "retire",
        }
    }
}

impl GocraftWork {
    /// Puts the fence of the speaker's resource into a state.
    pub async fn fence(&self, op: FenceOp) -> Result<(), ScriptError> {
        let keys = vec![self.keys.fences(), self.keys.schema()];
        let mut args = vec![op.as_str().into()];
        args.extend(speaker_args(&self.speaker));
        let (value, _) = self.client.run(Call::script(&scripts::FENCE, keys, args)).await?;
        fence_checked(Reply::new("fence", value)).map(|_| ())
    }

    /// Runs a script whose first arguments are the speaker; advances the fence and tries again where that is all it needs.
    pub(super) async fn run_fenced(&self, call: Call, script: &'static str) -> Result<Vec<Reply>, ScriptError> {
        let (value, _) = self.client.run(call.clone()).await?;
        match fence_checked(Reply::new(script, value)) {
            Err(ScriptError::Fenced(Fenced::Unfenced)) => {
                self.fence(FenceOp::Advance).await?;
                let (value, _) = self.client.run(call).await?;
                fence_checked(Reply::new(script, value))
            }
            answer => answer,
        }
    }
}

/// The arguments that every fenced script begins with.
pub(super) fn speaker_args(speaker: &Speaker) -> Vec<Vec<u8>> {
    vec![speaker.field.clone().into(), speaker.uid.clone().into(), speaker.generation.to_string().into()]
}

/// The parts of an answer, unless it says that the fence or a key of a wrong type refused the script.
pub(super) fn fence_checked(reply: Reply) -> Result<Vec<Reply>, ScriptError> {
    let parts: Vec<Reply> = reply.parts()?.collect();
    let word = match parts.first() {
        Some(first) => first.text()?,
        None => None,
    };
    let second = || parts.get(1).map(Reply::text).transpose().map(|text| text.flatten().unwrap_or_default());
    match word.as_deref() {
        Some("fenced") => Err(ScriptError::Fenced(Fenced::parse(&second()?))),
        Some("spoiled") => Err(ScriptError::Spoiled { key: second()? }),
        _ => Ok(parts),
    }
}
