//! What all keepers of this process share.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::runtime::events::Recorder;

use super::report::WriteBudget;
use crate::leader::Leadership;
use crate::metrics::Metrics;
use crate::reaper::owner::OwnerCache;
use crate::reaper::pods::PodIndex;
use crate::redis::Connections;
use crate::scaling::rivals::Rivals;

/// Clients, indexes and settings that every keeper uses.
pub struct Context {
    /// The API server.
    pub client: Client,
    /// This cluster's name in Redis.
    pub cluster: String,
    /// Redis clients, shared by endpoint and credentials.
    pub connections: Connections,
    /// All pods under watch.
    pub pods: Arc<PodIndex>,
    /// Which `ReplicaSet` belongs to which Deployment.
    pub owners: Arc<OwnerCache>,
    /// Who else would scale what queues scale.
    pub rivals: Arc<Rivals>,
    /// Live numbers.
    pub metrics: Arc<Metrics>,
    /// Whether this replica writes to the API server.
    pub lead: Leadership,
    /// Whether this process runs in the cluster, so that names of Services mean something to it.
    pub in_cluster: bool,
    /// Change nothing at all.
    pub observe_only: bool,
    /// How often caps are looked at although nothing told of a change.
    pub resync: Duration,
    /// Bounds the status writes of this process.
    pub budget: WriteBudget,
    /// Writes Events.
    pub recorder: Recorder,
}

impl Context {
    /// Whether this replica may write to the API server now.
    #[must_use]
    pub fn leads(&self) -> bool {
        *self.lead.borrow() && !self.observe_only
    }
}
