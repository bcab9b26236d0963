//! What workers and poolkeeper say to each other through Redis.
//!
//! A protocol is the Redis format of one worker library. It must offer, each as one atomic script:
//! *observe* (all that a pass needs, in one round trip), *settle* (give back what dead pools held and set the counts to
//! what runs), *forget* (drop a settled pool), and the holding of caps. [`gocraft_work`] is the first.
//!
//! This file has the words that all protocols share.

pub mod gocraft_work;
pub mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::reaper::binding::Binding;

macro_rules! text_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text as it stands in Redis, where that is text; see [`text`].
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The bytes as they stand in Redis.
            #[must_use]
            pub fn to_bytes(&self) -> Vec<u8> {
                text::to_bytes(&self.0)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_newtype! {
    /// The id that one worker pool gave itself when its process started (gocraft/work: 24 hex digits).
    PoolId
}
text_newtype! {
    /// The name of a job type, such as `send_email`.
    JobTypeName
}

/// A whole second of some machine's clock since 1970. Two of them may be compared only when both are of one machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EpochSeconds(pub i64);

/// What one beat of a pool said. `heartbeat_at` and `started_at` are of the worker's clock.
///
/// Source: gocraft/work v0.5.1 `heartbeater.go`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// When the pool wrote it. Only ever compared with an earlier value of the same pool.
    pub heartbeat_at: EpochSeconds,
    /// When the pool started.
    pub started_at: EpochSeconds,
    /// The job types that the pool runs.
    pub job_names: Vec<JobTypeName>,
    /// How many jobs it runs at once.
    pub concurrency: u32,
    /// The host name of its process.
    pub host: Arc<str>,
    /// The process id, in its own pid namespace.
    pub pid: Arc<str>,
}

/// One pool that Redis knows of, from whichever key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolSeen {
    /// Its last beat; `None` for an id known only from a lock count or an in-progress list.
    pub heartbeat: Option<Box<Heartbeat>>,
    /// Whether the set of worker pools names it.
    pub listed: bool,
}

/// One job type as one atomic read showed it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobTypeSeen {
    /// Jobs in its list.
    pub waiting: u64,
    /// `t` (enqueued at, epoch seconds) of the job that runs next, where it could be read.
    pub oldest_enqueued_at: Option<EpochSeconds>,
    /// The lock count; an absent key counts as 0, one that holds no number as -1, which no count is in health.
    pub lock: i64,
    /// Lock counts by pool; fields at 0 are left out, those that hold no number count as -1.
    pub lock_info: BTreeMap<PoolId, i64>,
    /// Lengths of the in-progress lists that were read; empty ones are left out.
    pub in_progress: BTreeMap<PoolId, u64>,
    /// Max concurrency in Redis; `None` where the key is absent, 0 means no cap.
    pub cap: Option<i64>,
    /// Whether the type is paused.
    pub paused: bool,
    /// Jobs of this type in `scheduled` and `retry` whose score Redis's clock has reached. 0 unless they are wanted; while
    /// [`Observation::due_incomplete`], there may be more.
    pub due: u64,
    /// The least score of those, in whole seconds; infinite ones do not count.
    pub oldest_due_at: Option<EpochSeconds>,
    /// The second at which the next one is due, where it is among the next 50 of one of the sets.
    pub next_due_at: Option<EpochSeconds>,
    /// What keeps this type from being read or settled, such as a key of a wrong type; names the key.
    pub spoiled: Option<String>,
}

impl JobTypeSeen {
    /// Jobs of this type that run now, by the in-progress lists.
    #[must_use]
    pub fn running(&self) -> u64 {
        self.in_progress.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// What another `JobQueue`, of this cluster or another, says it manages in the same Redis namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Name of the cluster that its operator runs in.
    pub cluster: String,
    /// Kubernetes namespace of the `JobQueue`.
    pub namespace: String,
    /// Name of the `JobQueue`.
    pub name: String,
    /// Uid of the `JobQueue`.
    pub uid: String,
    /// Creation time of the `JobQueue` in epoch seconds, by its own API server; orders claims of one cluster.
    pub created_at: EpochSeconds,
    /// Job types whose cap or pause it holds.
    pub job_types: BTreeSet<JobTypeName>,
    /// Jobs that one of its pods runs at once, as last seen.
    pub concurrency: u32,
    /// Host names of its pods within the last day, with the epoch second of Redis's clock when each was last there.
    pub hosts: BTreeMap<String, EpochSeconds>,
    /// When it was last written, by Redis's clock.
    pub written_at: EpochSeconds,
}

/// One Redis namespace as one atomic read showed it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observation {
    /// Redis's clock at the read, epoch seconds.
    pub redis_time: EpochSeconds,
    /// Which connection answered: silence may be counted only over reads with one and the same.
    pub connection: ConnectionId,
    /// All pools: listed ones, and ids known only from lock counts or in-progress lists.
    pub pools: BTreeMap<PoolId, PoolSeen>,
    /// All job types that Redis or the resource names.
    pub job_types: BTreeMap<JobTypeName, Box<JobTypeSeen>>,
    /// Bindings kept in Redis.
    pub bindings: BTreeMap<PoolId, Binding>,
    /// Pools reaped within the last day, with the epoch second of Redis's clock.
    pub reaped: BTreeMap<PoolId, EpochSeconds>,
    /// All claims on the namespace, our own among them.
    pub claims: Vec<Claim>,
    /// Counters since the namespace was first managed, by name.
    pub totals: BTreeMap<String, i64>,
    /// `scheduled` and `retry`, where they have a wrong type, and so nobody knows what is due: the keys.
    pub spoiled_sets: Vec<String>,
    /// So many entries are due that not all were looked at yet.
    pub due_incomplete: bool,
}

/// One connection to one Redis server. A new one is another, also to the same server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Which resource a script speaks for, and which version of it: older ones are refused by the fence kept in Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speaker {
    /// `cluster/kind/namespace/name`: the field in the hash of fences.
    pub field: String,
    /// Uid of the resource.
    pub uid: String,
    /// `metadata.generation` of the spec that is enforced.
    pub generation: i64,
}
