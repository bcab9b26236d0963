//! Scripts that run again within milliseconds of a change of the keys they watch ("Caps stay").
//!
//! A [`Tracker`] has a connection of its own, with RESP3 `CLIENT TRACKING ON OPTIN NOLOOP`, and runs nothing there but
//! the scripts it was given, each right behind a `CLIENT CACHING YES`. So it hears of changes of exactly the keys that
//! these scripts declare, by anybody but itself. Redis tells once for each key; then it must be read again, and a write
//! of our own makes Redis forget the key untold: such a script must end by reading all that it watches.
//!
//! Scripts run when they are added or replaced, at once when one of their keys changes, after a new connection, and
//! every [`Watch::resync`]. Runs for changes have a rate limit for each watch: 20 in a burst, then 5 a second, late but
//! never lost, so that two owners of a key never fight at full speed. Where tracking is refused, scripts run each second.

mod actor;
mod watches;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ::redis::Value;
use tokio::sync::{Notify, mpsc};
use tokio_util::task::AbortOnDropHandle;

use super::dial::Dialer;
use super::failure::Failure;
use super::script::LuaScript;

/// How many unread results a watch keeps; the oldest go first. At the rate limit that is more than 8 s of lag.
const UNREAD: usize = 64;

/// A script to keep running.
#[derive(Debug, Clone)]
pub struct Watch {
    /// Reads all of `keys` last, and writes nothing else.
    pub script: &'static LuaScript,
    /// What it watches.
    pub keys: Vec<Vec<u8>>,
    /// Its arguments.
    pub args: Vec<Vec<u8>>,
    /// How long until it runs again though nothing was heard.
    pub resync: Duration,
}

#[derive(Debug)]
enum Order {
    Add { id: u64, watch: Watch, outbox: Arc<Outbox> },
    Replace { id: u64, keys: Vec<Vec<u8>>, args: Vec<Vec<u8>> },
    Remove { id: u64 },
}

/// The results of one watch on their way to its reader.
#[derive(Debug, Default)]
struct Outbox {
    unread: Mutex<VecDeque<Result<Value, Failure>>>,
    arrived: Notify,
}

impl Outbox {
    fn put(&self, result: Result<Value, Failure>) {
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        if unread.len() >= UNREAD {
            unread.pop_front();
        }
        unread.push_back(result);
        drop(unread);
        self.arrived.notify_one();
    }

    fn take(&self) -> Option<Result<Value, Failure>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    orders: mpsc::UnboundedSender<Order>,
    next_id: AtomicU64,
    active: Arc<AtomicBool>,
    _actor: AbortOnDropHandle<()>,
}

/// The watching connection of one server. It ends with the last of its clones and watches.
#[derive(Debug, Clone)]
pub struct Tracker {
    shared: Arc<Shared>,
}

impl Tracker {
    pub(super) fn start(dialer: Arc<Dialer>) -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        let active = Arc::new(AtomicBool::new(false));
        let actor = tokio::spawn(actor::run(dialer, inbox, active.clone()));
        let shared = Shared { orders, next_id: AtomicU64::new(1), active, _actor: AbortOnDropHandle::new(actor) };
        Self { shared: Arc::new(shared) }
    }

    pub(super) fn of(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    pub(super) fn downgrade(&self) -> Weak<Shared> {
        Arc::downgrade(&self.shared)
    }

    /// Begins to run a script, until the [`Watching`] is dropped. It connects by itself and never gives up.
    #[must_use]
    pub fn watch(&self, watch: Watch) -> Watching {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let outbox = Arc::new(Outbox::default());
        // The receiver lives as long as `shared`.
        let _ = self.shared.orders.send(Order::Add { id, watch, outbox: outbox.clone() });
        Watching { id, outbox, shared: self.shared.clone() }
    }

    /// Whether changes are heard of; otherwise scripts run each second.
    #[must_use]
    pub fn tracking_active(&self) -> bool {
        self.shared.active.load(Ordering::Relaxed)
    }
}

/// A script that is kept running.
#[derive(Debug)]
pub struct Watching {
    id: u64,
    outbox: Arc<Outbox>,
    shared: Arc<Shared>,
}

impl Watching {
    /// The result of the next run, in order. A lost connection, and each attempt to replace it that fails, is one
    /// failure. Cancel-safe. A reader that lags more than 64 results behind loses the oldest.
    pub async fn next(&mut self) -> Result<Value, Failure> {
        loop {
            if let Some(result) = self.outbox.take() {
                return result;
            }
            self.outbox.arrived.notified().await;
        }
    }

    /// Runs the script with other keys and arguments from now on, first at once.
    pub fn replace(&self, keys: Vec<Vec<u8>>, args: Vec<Vec<u8>>) {
        let _ = self.shared.orders.send(Order::Replace { id: self.id, keys, args });
    }

    /// Whether changes are heard of; otherwise the script runs each second.
    #[must_use]
    pub fn tracking_active(&self) -> bool {
        self.shared.active.load(Ordering::Relaxed)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.shared.orders.send(Order::Remove { id: self.id });
    }
}
