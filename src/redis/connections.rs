//! One client for all that use the same server with the same credentials.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError, Weak};

use super::client::{Client, Inner};
use super::endpoint::Endpoint;

/// The clients in use, by endpoint. A client nobody uses any more is closed.
#[derive(Debug, Default)]
pub struct Connections {
    clients: Mutex<HashMap<Endpoint, Weak<Inner>>>,
}

impl Connections {
    /// The client for `endpoint`: the one that others use already, or a new one that has not connected yet.
    #[must_use]
    pub fn get(&self, endpoint: &Endpoint) -> Client {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inner) = clients.get(endpoint).and_then(Weak::upgrade) {
            return Client::of(inner);
        }
        clients.retain(|_, inner| inner.strong_count() > 0);
        let client = Client::new(endpoint.clone());
        clients.insert(endpoint.clone(), client.weak());
        client
    }
}
