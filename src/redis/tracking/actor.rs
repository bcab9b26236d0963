//! The task that owns a watching connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::redis::{Pipeline, PushInfo, PushKind, Value};
use tokio::sync::mpsc;

use super::Order;
use super::watches::Watches;
use crate::redis::backoff::Backoff;
use crate::redis::client::{eval, lacks_script, load, refused};
use crate::redis::dial::{Dialer, Link};
use crate::redis::failure::{Failure, Reason};

/// How often an idle connection is asked whether it still lives. A half-open one is not told of.
const PING_EVERY: Duration = Duration::from_secs(5);
/// Scripts in one round trip, so that a server is not kept from others for long.
const BATCH: usize = 64;

struct Connected {
    link: Link,
    pushes: mpsc::UnboundedReceiver<PushInfo>,
    ping_at: Instant,
    tracking: bool,
    /// Keeps `pushes` open where the connection itself has none to send.
    _no_pushes: Option<mpsc::UnboundedSender<PushInfo>>,
}

enum Wake {
    Order(Option<Order>),
    Push(Option<PushInfo>),
    Timer,
}

pub(super) async fn run(dialer: Arc<Dialer>, mut inbox: mpsc::UnboundedReceiver<Order>, active: Arc<AtomicBool>) {
    let mut actor = Actor {
        dialer,
        watches: Watches::default(),
        connected: None,
        backoff: Backoff::default(),
        retry_at: Instant::now(),
        active,
    };
    loop {
        match actor.wait(&mut inbox).await {
            Wake::Order(None) => return,
            Wake::Order(Some(order)) => actor.obey(order),
            Wake::Push(push) => actor.hear(push),
            Wake::Timer => {}
        }
        while let Ok(order) = inbox.try_recv() {
            actor.obey(order);
        }
        actor.hear_all();
        if let Err(failure) = actor.work().await {
            actor.lost(&failure);
        }
    }
}

struct Actor {
    dialer: Arc<Dialer>,
    watches: Watches,
    connected: Option<Connected>,
    backoff: Backoff,
    retry_at: Instant,
    active: Arc<AtomicBool>,
}

impl Actor {
    async fn wait(&mut self, inbox: &mut mpsc::UnboundedReceiver<Order>) -> Wake {
        let wake_at = match &self.connected {
            Some(connected) => {
                Some(self.watches.next_due().map_or(connected.ping_at, |due| due.min(connected.ping_at)))
            }
            None if self.watches.is_empty() => None,
            None => Some(self.retry_at),
        };
        let timer = async {
            match wake_at {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let push = async {
            match &mut self.connected {
                Some(connected) => connected.pushes.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            push = push => Wake::Push(push),
            order = inbox.recv() => Wake::Order(order),
            () = timer => Wake::Timer,
        }
    }

    fn obey(&mut self, order: Order) {
        let now = Instant::now();
        match order {
            Order::Add { id, watch, outbox } => self.watches.add(id, watch, outbox, now),
            Order::Replace { id, keys, args } => self.watches.replace(id, keys, args, now),
            Order::Remove { id } => self.watches.remove(id),
        }
    }

    fn hear_all(&mut self) {
        while let Some(push) = self.connected.as_mut().and_then(|connected| connected.pushes.try_recv().ok()) {
            self.hear(Some(push));
        }
    }

    fn hear(&mut self, push: Option<PushInfo>) {
        let now = Instant::now();
        match push {
            // The sender goes away with the connection, after a last word or without.
            None | Some(PushInfo { kind: PushKind::Disconnection, .. }) => self.lost(&disconnected()),
            Some(PushInfo { kind: PushKind::Invalidate, data }) => match data.into_iter().next() {
                Some(Value::Array(keys)) => {
                    for key in keys {
                        if let Value::BulkString(key) = key {
                            self.watches.key_changed(&key, now);
                        }
                    }
                }
                // FLUSHALL and FLUSHDB name no keys.
                _ => self.watches.all_changed(now),
            },
            Some(_) => {}
        }
    }

    fn lost(&mut self, failure: &Failure) {
        self.connected = None;
        self.active.store(false, Ordering::Relaxed);
        self.retry_at = Instant::now() + self.backoff.next_wait();
        for entry in self.watches.all() {
            entry.outbox.put(Err(failure.clone()));
        }
    }

    /// Connects where that is due, runs what is due, and asks for a sign of life.
    async fn work(&mut self) -> Result<(), Failure> {
        if self.connected.is_none() {
            if self.watches.is_empty() || Instant::now() < self.retry_at {
                return Ok(());
            }
            let connected = connect(&self.dialer).await?;
            self.active.store(connected.tracking, Ordering::Relaxed);
            self.connected = Some(connected);
            self.watches.all_changed(Instant::now());
        }
        let Some(connected) = &mut self.connected else { return Ok(()) };
        let due = self.watches.take_due(Instant::now(), connected.tracking);
        for batch in due.chunks(BATCH) {
            let heard = connected.tracking;
            run_batch(connected, &self.watches, batch).await?;
            self.backoff.reset();
            self.active.store(connected.tracking, Ordering::Relaxed);
            if heard && !connected.tracking {
                self.watches.heard_no_more(Instant::now());
            }
        }
        if Instant::now() >= connected.ping_at {
            connected.ping_at = Instant::now() + PING_EVERY;
            // Any answer is a sign of life, a refusal too.
            connected
                .link
                .connection
                .send_packed_command(&::redis::cmd("PING"))
                .await
                .map_err(|error| Failure::from(&error))?;
        }
        Ok(())
    }
}

fn disconnected() -> Failure {
    Failure::new(Reason::Disconnected, "the watching connection was lost")
}

async fn connect(dialer: &Dialer) -> Result<Connected, Failure> {
    let (sender, pushes) = mpsc::unbounded_channel();
    let ping_at = Instant::now() + PING_EVERY;
    let mut link = match dialer.dial(Some(sender)).await {
        Ok(link) => link,
        // A server or proxy from before RESP3.
        Err(failure) if failure.reason == Reason::UnexpectedReply || failure.reason == Reason::ScriptRefused => {
            let (sender, pushes) = mpsc::unbounded_channel();
            let link = dialer.dial_resp2().await?;
            return Ok(Connected { link, pushes, ping_at, tracking: false, _no_pushes: Some(sender) });
        }
        Err(failure) => return Err(failure),
    };
    let mut command = ::redis::cmd("CLIENT");
    command.arg("TRACKING").arg("ON").arg("OPTIN").arg("NOLOOP");
    let answer = link.connection.send_packed_command(&command).await.map_err(|error| Failure::from(&error));
    let tracking = match answer.and_then(refused) {
        Ok(_) => true,
        Err(failure) if failure.may_pass() => return Err(failure),
        Err(_) => false,
    };
    Ok(Connected { link, pushes, ping_at, tracking, _no_pushes: None })
}

/// Runs scripts in one round trip, each right behind its CLIENT CACHING YES, which covers just the next command. What
/// the server does not have is loaded, and then run again with a CLIENT CACHING YES of its own.
async fn run_batch(connected: &mut Connected, watches: &Watches, ids: &[u64]) -> Result<(), Failure> {
    let mut lacking = Vec::new();
    for (id, answer) in ids.iter().zip(send(connected, watches, ids, &[]).await?) {
        if lacks_script(&answer) {
            lacking.push(*id);
        } else {
            deliver(watches, *id, answer)?;
        }
    }
    if !lacking.is_empty() {
        for (id, answer) in lacking.iter().zip(send(connected, watches, &lacking, &lacking).await?) {
            deliver(watches, *id, answer)?;
        }
    }
    Ok(())
}

fn deliver(watches: &Watches, id: u64, answer: Value) -> Result<(), Failure> {
    let result = refused(answer);
    // Without an answer, nobody would hear of what changes until the resync: begin anew.
    if let Some(failure) = result.as_ref().err().filter(|failure| failure.may_pass()) {
        return Err(failure.clone());
    }
    if let Some(entry) = watches.get(id) {
        entry.outbox.put(result);
    }
    Ok(())
}

async fn send(
    connected: &mut Connected,
    watches: &Watches,
    ids: &[u64],
    to_load: &[u64],
) -> Result<Vec<Value>, Failure> {
    let mut pipeline = Pipeline::new();
    for entry in to_load.iter().filter_map(|id| watches.get(*id)) {
        pipeline.add_command(load(entry.watch.script));
    }
    let loads = pipeline.len();
    for entry in ids.iter().filter_map(|id| watches.get(*id)) {
        if connected.tracking {
            pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
        }
        pipeline.add_command(eval(entry.watch.script, &entry.watch.keys, &entry.watch.args));
    }
    let answers = connected.link.connection.send_packed_commands(&pipeline, 0, pipeline.len()).await;
    let answers = answers.map_err(|error| Failure::from(&error))?;
    let mut runs = Vec::with_capacity(ids.len());
    let mut unheard = None;
    for (at, answer) in answers.into_iter().enumerate().skip(loads) {
        if connected.tracking && (at - loads).is_multiple_of(2) {
            unheard = unheard.or_else(|| refused(answer).err());
        } else {
            runs.push(answer);
        }
    }
    match unheard {
        // A script of somebody else blocks the server, or the like: what changes meanwhile is found after a reconnect.
        Some(failure) if failure.may_pass() => return Err(failure),
        // Refused now, though tracking was allowed: fall back to polling.
        Some(_) => connected.tracking = false,
        None => {}
    }
    Ok(runs)
}
