//! Calls to one Redis server with one set of credentials, over one connection that all users share.
//!
//! The connection is made at the first call and made anew after it was lost. One attempt at a time; after a failed one
//! the next waits by [`Backoff`], and calls in between fail at once with the failure that was last: no hot loop and no
//! pile of waiting callers, however long Redis is away.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use ::redis::{Cmd, Pipeline, Value};
use tokio_util::task::AbortOnDropHandle;

use super::backoff::Backoff;
use super::dial::{Dialer, Link};
use super::endpoint::Endpoint;
use super::failure::{Failure, Reason};
use super::script::LuaScript;
use super::tracking::Tracker;
use crate::protocol::ConnectionId;

/// Round trips under way at once. A thousand users that ask at the same moment wait for their turn here, not at the
/// server, where their waiting would be taken for its silence.
const AT_ONCE: usize = 64;
/// How often a connection is asked whether it still lives.
const PING_EVERY: Duration = Duration::from_secs(5);

/// One call: a script with keys and arguments, or a plain command.
#[derive(Debug, Clone)]
pub struct Call(pub(super) Kind);

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Script { script: &'static LuaScript, keys: Vec<Vec<u8>>, args: Vec<Vec<u8>> },
    Command(Cmd),
}

impl Call {
    /// A script. All keys that it touches must be in `keys`.
    #[must_use]
    pub fn script(script: &'static LuaScript, keys: Vec<Vec<u8>>, args: Vec<Vec<u8>>) -> Self {
        Self(Kind::Script { script, keys, args })
    }

    /// A plain command.
    #[must_use]
    pub fn command(command: Cmd) -> Self {
        Self(Kind::Command(command))
    }

    fn add_to(&self, pipeline: &mut Pipeline) {
        match &self.0 {
            Kind::Script { script, keys, args } => {
                pipeline.add_command(eval(script, keys, args));
            }
            Kind::Command(command) => {
                pipeline.add_command(command.clone());
            }
        }
    }
}

pub(super) fn eval(script: &LuaScript, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Cmd {
    let mut command = ::redis::cmd("EVALSHA");
    command.arg(script.sha()).arg(keys.len()).arg(keys).arg(args);
    command
}

pub(super) fn load(script: &LuaScript) -> Cmd {
    let mut command = ::redis::cmd("SCRIPT");
    command.arg("LOAD").arg(script.source);
    command
}

/// Whether an answer says that the server does not have the script (any more).
pub(super) fn lacks_script(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

pub(super) fn refused(answer: Value) -> Result<Value, Failure> {
    match answer {
        Value::ServerError(error) => Err(Failure::from_server(error.code(), error.details().unwrap_or(""))),
        answer => Ok(answer),
    }
}

/// One Redis server with one set of credentials. Clones share the connection.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) dialer: Arc<Dialer>,
    /// Held while a connection is made, so that there is one attempt at a time.
    dialing: tokio::sync::Mutex<()>,
    turns: tokio::sync::Semaphore,
    state: Mutex<State>,
    tracker: Mutex<Weak<super::tracking::Shared>>,
}

#[derive(Debug, Default)]
struct State {
    live: Option<Live>,
    last: Option<(Failure, Instant)>,
    backoff: Backoff,
}

#[derive(Debug)]
struct Live {
    link: Link,
    _ping: AbortOnDropHandle<()>,
}

impl Client {
    /// A client that has not connected yet.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            inner: Arc::new(Inner {
                dialer: Arc::new(Dialer::new(endpoint)),
                dialing: tokio::sync::Mutex::new(()),
                turns: tokio::sync::Semaphore::new(AT_ONCE),
                state: Mutex::default(),
                tracker: Mutex::default(),
            }),
        }
    }

    /// The server and the credentials.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        self.inner.dialer.endpoint()
    }

    /// The connection of this server that watches keys; all users of this client share one.
    #[must_use]
    pub fn tracker(&self) -> Tracker {
        let mut tracker = lock(&self.inner.tracker);
        if let Some(shared) = tracker.upgrade() {
            return Tracker::of(shared);
        }
        let new = Tracker::start(self.inner.dialer.clone());
        *tracker = new.downgrade();
        new
    }

    /// Runs one call.
    pub async fn run(&self, call: Call) -> Result<(Value, ConnectionId), Failure> {
        let (mut answers, connection) = self.run_all(vec![call]).await?;
        let answer = answers.pop().unwrap_or_else(|| Err(Failure::unexpected("no answer to a call")))?;
        Ok((answer, connection))
    }

    /// Runs calls in one round trip, in order; each has its own result. Scripts that the server does not have are
    /// loaded and run in a second round trip, once. `Err` when not a single answer came.
    pub async fn run_all(&self, calls: Vec<Call>) -> Result<(Vec<Result<Value, Failure>>, ConnectionId), Failure> {
        let _turn = self.inner.turns.acquire().await;
        let (mut connection, id) = self.connection().await?;
        if calls.is_empty() {
            return Ok((Vec::new(), id));
        }
        let mut pipeline = Pipeline::with_capacity(calls.len());
        for call in &calls {
            call.add_to(&mut pipeline);
        }
        let mut answers = self.send(&mut connection, id, &pipeline).await?;
        let lacking: Vec<usize> = (0..answers.len()).filter(|&at| lacks_script(&answers[at])).collect();
        if !lacking.is_empty() {
            let mut pipeline = Pipeline::new();
            let mut loaded: Vec<&str> = Vec::new();
            for &at in &lacking {
                if let Kind::Script { script, .. } = &calls[at].0
                    && !loaded.contains(&script.sha())
                {
                    loaded.push(script.sha());
                    pipeline.add_command(load(script));
                }
            }
            for &at in &lacking {
                calls[at].add_to(&mut pipeline);
            }
            let mut loads = self.send(&mut connection, id, &pipeline).await?;
            let again = loads.split_off(loaded.len().min(loads.len()));
            let refusal = loads.into_iter().find(|answer| matches!(answer, Value::ServerError(_)));
            for (at, answer) in lacking.into_iter().zip(again) {
                // A refused SCRIPT LOAD says more than the NOSCRIPT that follows from it.
                answers[at] = if lacks_script(&answer) { refusal.clone().unwrap_or(answer) } else { answer };
            }
        }
        let results: Vec<_> = answers.into_iter().map(refused).collect();
        match results.iter().find_map(|result| result.as_ref().err().filter(|failure| failure.drops_connection())) {
            Some(failure) => self.inner.lost(id, failure),
            None => lock(&self.inner.state).backoff.reset(),
        }
        Ok((results, id))
    }

    async fn send(
        &self,
        connection: &mut ::redis::aio::MultiplexedConnection,
        id: ConnectionId,
        pipeline: &Pipeline,
    ) -> Result<Vec<Value>, Failure> {
        connection.send_packed_commands(pipeline, 0, pipeline.len()).await.map_err(|error| {
            let mut failure = Failure::from(&error);
            if failure.reason == Reason::UnexpectedReply && error.is_io_error() {
                failure.reason = Reason::Disconnected;
            }
            if failure.drops_connection() {
                self.inner.lost(id, &failure);
            }
            failure
        })
    }

    async fn connection(&self) -> Result<(::redis::aio::MultiplexedConnection, ConnectionId), Failure> {
        if let Some(ready) = self.inner.ready()? {
            return Ok(ready);
        }
        let _one_at_a_time = self.inner.dialing.lock().await;
        if let Some(ready) = self.inner.ready()? {
            return Ok(ready);
        }
        match self.inner.dialer.dial(None).await {
            Ok(link) => {
                let ready = (link.connection.clone(), link.id);
                let ping = tokio::spawn(keep_asking(Arc::downgrade(&self.inner), ready.0.clone(), link.id));
                let mut state = lock(&self.inner.state);
                state.last = None;
                state.live = Some(Live { link, _ping: AbortOnDropHandle::new(ping) });
                Ok(ready)
            }
            Err(failure) => {
                lock(&self.inner.state).failed(&failure);
                Err(failure)
            }
        }
    }

    pub(super) fn weak(&self) -> Weak<Inner> {
        Arc::downgrade(&self.inner)
    }

    pub(super) fn of(inner: Arc<Inner>) -> Self {
        Self { inner }
    }
}

impl Inner {
    /// The open connection; `None` when one should be made now; the last failure while it is too early for that.
    fn ready(&self) -> Result<Option<(::redis::aio::MultiplexedConnection, ConnectionId)>, Failure> {
        let mut state = lock(&self.state);
        if let Some(live) = &state.live {
            if !live.link.is_over() {
                return Ok(Some((live.link.connection.clone(), live.link.id)));
            }
            state.live = None;
        }
        match &state.last {
            Some((failure, retry_at)) if Instant::now() < *retry_at => Err(failure.clone()),
            _ => Ok(None),
        }
    }

    fn lost(&self, id: ConnectionId, failure: &Failure) {
        let mut state = lock(&self.state);
        if state.live.as_ref().is_some_and(|live| live.link.id == id) {
            state.live = None;
            state.failed(failure);
        }
    }
}

impl State {
    fn failed(&mut self, failure: &Failure) {
        let wait = self.backoff.next_wait();
        self.last = Some((failure.clone(), Instant::now() + wait));
    }
}

/// Finds out that a connection is half open while nobody calls. Any answer is a sign of life, a refusal too.
async fn keep_asking(inner: Weak<Inner>, mut connection: ::redis::aio::MultiplexedConnection, id: ConnectionId) {
    loop {
        tokio::time::sleep(PING_EVERY).await;
        let answer = connection.send_packed_command(&::redis::cmd("PING")).await;
        let Some(inner) = inner.upgrade() else { return };
        if let Err(error) = answer {
            let failure = Failure::from(&error);
            if failure.drops_connection() {
                inner.lost(id, &failure);
                return;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that holds one of these locks can panic half-way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
