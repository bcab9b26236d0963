//! gocraft/work v0.5.1 and its forks, Harbor's job service among them.
//!
//! - [`keys`], [`heartbeat`]: the format; [`acl`]: the rights that all of it needs.
//! - [`observe`]: one atomic read of all that a pass needs; [`sweep`]: lists that nothing else names.
//! - [`settle`], [`forget`]: give back what dead pools held, and forget them.
//! - [`wrong_type`]: what to say of a key that is none of its kind.
//! - [`cap`]: hold caps and pauses; [`backlog`]: the wake-up at the first job.
//! - [`fence`], [`claim`], [`release`], [`bind`], [`record`]: our own keys.
//!
//! Every change is one script below `lua/gocraft_work/`.

pub mod acl;
pub mod backlog;
pub mod bind;
pub mod cap;
pub mod claim;
pub mod fence;
pub mod forget;
pub mod heartbeat;
pub mod keys;
pub mod observe;
pub mod record;
pub mod release;
mod reply;
mod scripts;
pub mod settle;
pub mod sweep;
pub mod wrong_type;

pub use fence::{FenceOp, Fenced};
pub use keys::Namespace;
pub use observe::Observer;
pub use sweep::Sweep;

use crate::protocol::Speaker;
use crate::redis::{Client, Failure};

/// Why a script did not do its work. It has changed nothing then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// Redis failed or refused.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The fence refused.
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// A key has a type that the protocol does not give it.
    #[error("{}", wrong_type::advice(None, key))]
    Spoiled {
        /// The key.
        key: String,
    },
}

/// One namespace in one Redis, spoken to for one resource. Clones share the connection.
#[derive(Debug, Clone)]
pub struct GocraftWork {
    client: Client,
    keys: Namespace,
    speaker: Speaker,
}

impl GocraftWork {
    /// Speaks to the namespace as `speaker`.
    #[must_use]
    pub fn new(client: Client, keys: Namespace, speaker: Speaker) -> Self {
        Self { client, keys, speaker }
    }

    /// The connection.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The keys of the namespace.
    #[must_use]
    pub fn keys(&self) -> &Namespace {
        &self.keys
    }

    /// For whom it speaks.
    #[must_use]
    pub fn speaker(&self) -> &Speaker {
        &self.speaker
    }

    /// Speaks for another version of the resource from now on.
    pub fn set_speaker(&mut self, speaker: Speaker) {
        self.speaker = speaker;
    }
}
