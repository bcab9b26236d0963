//! Which replica writes to the API server: the holder of a Lease. Everything in Redis is safe to repeat and is done by
//! every replica, so losing the Lease loses and delays nothing but status, Events and Deployments.

use std::time::Duration;

use kube::Client;
use kube_lease_manager::{LeaseCreateMode, LeaseManagerBuilder};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How long a Lease holds without being renewed. A replica killed outright is followed after this time.
pub const LEASE_SECONDS: u64 = 15;
/// How long before the end of a Lease it is renewed.
const RENEW_BEFORE_SECONDS: u64 = 10;
const RETRY: Duration = Duration::from_secs(2);

/// Name, namespace and holder of the Lease.
#[derive(Debug, Clone)]
pub struct LeaseSettings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Who we are among the replicas.
    pub identity: String,
}

/// Whether this replica leads, as a value that changes.
pub type Leadership = watch::Receiver<bool>;

/// Takes part in the election until `stop` is cancelled, then gives the Lease back.
///
/// A failing API server is no lead: whoever can't renew stops writing at once, and starts again when it could.
pub async fn elect(client: Client, settings: LeaseSettings, lead: watch::Sender<bool>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let built = LeaseManagerBuilder::new(client.clone(), settings.name.clone())
            .with_namespace(settings.namespace.clone())
            .with_identity(settings.identity.clone())
            .with_duration(LEASE_SECONDS)
            .with_grace(RENEW_BEFORE_SECONDS)
            .with_field_manager(crate::api::FIELD_MANAGER)
            .with_create_mode(LeaseCreateMode::AutoCreate)
            .build()
            .await;
        let manager = match built {
            Ok(manager) => manager,
            Err(error) => {
                warn!(%error, lease = settings.name, namespace = settings.namespace, "the Lease can't be read or made; trying again");
                tokio::select! { () = stop.cancelled() => return, () = tokio::time::sleep(RETRY) => continue }
            }
        };
        loop {
            let changed = tokio::select! {
                changed = manager.changed() => changed,
                () = stop.cancelled() => {
                    lead.send_replace(false);
                    if tokio::time::timeout(RETRY, manager.release()).await.is_err() {
                        warn!("the Lease could not be given back in time; it runs out by itself");
                    }
                    return;
                }
            };
            match changed {
                Ok(leads) => {
                    info!(leads, identity = settings.identity, "leadership");
                    lead.send_replace(leads);
                }
                Err(error) => {
                    warn!(%error, "the Lease can't be renewed; not leading until it can");
                    lead.send_replace(false);
                    tokio::select! { () = stop.cancelled() => {}, () = tokio::time::sleep(RETRY) => {} }
                    break;
                }
            }
        }
    }
}
