//! From a container's terminated status in the API to its locks free and its jobs queued, in front.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use kube::Client;
use rand::Rng as _;
use redis::aio::MultiplexedConnection;
use serde_json::json;

use crate::figures::{Table, Times, ms};
use crate::operator::Operator;
use crate::support::redis::RedisServer;
use crate::workers::{self, AT_ONCE, Queue, Worker};

/// Job types that the workers know. They run jobs of the first one.
const TYPES: [&str; 3] = ["mail", "report", "sms"];
/// Nobody waits longer than this for a reap.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was measured of single deaths.
#[derive(Default)]
pub struct Deaths {
    patch: Times,
    from_sending: Times,
    from_acknowledged: Times,
}

impl Deaths {
    /// A row for each clock.
    pub fn rows(&self, table: &mut Table, what: &str) {
        for (from, times) in [
            ("the patch being sent", &self.from_sending),
            ("the API server's answer to it", &self.from_acknowledged),
            ("(the API server's answer itself)", &self.patch),
        ] {
            table.row([what.to_owned(), from.to_owned()].into_iter().chain(times.cells()));
        }
    }
}

/// The columns of [`Deaths::rows`].
pub fn columns() -> Table {
    Table::new(["", "from", "deaths", "p50", "p99", "max"])
}

/// Kills workers one after the other, at moments that have nothing to do with the operator's own.
pub async fn one_by_one(client: &Client, server: &RedisServer, victims: &[Worker]) -> Deaths {
    let mut deaths = Deaths::default();
    let mut blocked = server.connection().await;
    for victim in victims {
        let pause = rand::rng().random_range(20..200);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        // A client that waits for the job as a worker would, only blocked: it is told at the instant of the script.
        let list = format!("{}:jobs:mail", victim.prefix);
        let lock = format!("{list}:lock");
        let before: i64 = redis::cmd("GET").arg(&lock).query_async(&mut blocked).await.expect("a lock");
        let mut waiting = blocked.clone();
        let popped = tokio::spawn(async move {
            let mut pop = redis::cmd("BRPOP");
            let popped: Option<(String, String)> =
                pop.arg(&list).arg(PATIENCE.as_secs()).query_async(&mut waiting).await.expect("the blocked client");
            (Instant::now(), popped.map(|(_, job)| job))
        });
        let sent = Instant::now();
        victim.dies(client).await;
        let acknowledged = Instant::now();
        let (seen, job) = popped.await.expect("the blocked client");
        assert_eq!(job, Some(workers::job("mail", &victim.pool)), "the job of {}, byte for byte", victim.pod);
        let after: i64 = redis::cmd("GET").arg(&lock).query_async(&mut blocked).await.expect("a lock");
        assert_eq!(after, before - 1, "one lock is free");
        deaths.patch.add(acknowledged - sent);
        deaths.from_sending.add(seen - sent);
        deaths.from_acknowledged.add(seen.saturating_duration_since(acknowledged));
    }
    deaths
}

/// One queue with 300 workers, of which 250 die one by one.
pub async fn single(client: &Client, lease: &str) -> String {
    let server = RedisServer::start().await;
    let namespace = workers::namespace(client, "deaths").await;
    let url = server.url();
    let queue = Queue {
        namespace: &namespace,
        name: "deaths",
        url: &url,
        jobs: json!([{"name": "mail", "maxConcurrency": 1000}]),
    };
    let all = queue.pods(client, 0, 300).await;
    let mut redis = server.connection().await;
    workers::pools(&mut redis, &all, &TYPES, 1).await;
    let _beats = workers::beating(&redis, vec!["deaths".into()]);
    let operator = Operator::start(lease).await;
    queue.apply(client, true).await;
    workers::bound(&redis, "deaths", all.len()).await;
    let deaths = one_by_one(client, &server, &all[..250]).await;
    drop(operator);
    workers::clear(client, &[namespace]).await;
    let mut table = columns();
    deaths.rows(&mut table, "one JobQueue with 300 pods");
    table.below(
        "One worker dies",
        "A pod's status is patched to a terminated container; a client that is blocked in BRPOP on the job's list notes \
         when the job is there. In the same script the lock is freed. Aim: p99 50 ms.",
    )
}

/// A thousand pods that die as fast as the API server takes it, several times.
pub async fn mass(client: &Client, lease: &str, rounds: usize) -> String {
    let server = RedisServer::start().await;
    let namespace = workers::namespace(client, "mass").await;
    let url = server.url();
    let queue = Queue {
        namespace: &namespace,
        name: "mass",
        url: &url,
        jobs: json!([{"name": "mail", "maxConcurrency": 5000}]),
    };
    let mut redis = server.connection().await;
    let _beats = workers::beating(&redis, vec!["mass".into()]);
    let operator = Operator::start(lease).await;
    queue.apply(client, true).await;
    let mut table = Table::new([
        "round",
        "1,000 patches took",
        "from the first answer",
        "from the last answer",
        "jobs and locks at the last answer",
    ]);
    for round in 0..rounds {
        let all = queue.pods(client, round * 1000, 1000).await;
        workers::pools(&mut redis, &all, &TYPES, 1).await;
        workers::bound(&redis, "mass", all.len()).await;
        let watching = tokio::spawn(all_free(server.connection().await));
        let began = Instant::now();
        let answers: Vec<Instant> = stream::iter(&all)
            .map(|worker| async move {
                worker.dies(client).await;
                Instant::now()
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let (first, last) = (answers[0], answers[answers.len() - 1]);
        let (free, held) = watching.await.expect("the watching client");
        let still = held.iter().rev().find(|(at, _)| *at <= last).map_or(1000, |(_, lock)| *lock);
        check(&mut redis, &all).await;
        table.row([
            (round + 1).to_string(),
            ms(last - began),
            ms(free.saturating_duration_since(first)),
            ms(free.saturating_duration_since(last)),
            still.to_string(),
        ]);
    }
    drop(operator);
    workers::clear(client, &[namespace]).await;
    table.below(
        "1,000 workers die at once",
        "One JobQueue with 1,000 pods, each with one running job; all statuses are patched as fast as the API server takes \
         them. Until all locks are free and all jobs are queued. Aim: 1 s after the last answer.",
    )
}

/// Looks at the lock every millisecond until it is 0: when that was, and what it was when.
async fn all_free(mut redis: MultiplexedConnection) -> (Instant, Vec<(Instant, i64)>) {
    let end = Instant::now() + PATIENCE;
    let mut held = Vec::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    loop {
        ticks.tick().await;
        let lock: i64 = redis::cmd("GET").arg("mass:jobs:mail:lock").query_async(&mut redis).await.expect("a lock");
        let at = Instant::now();
        held.push((at, lock));
        if lock == 0 {
            return (at, held);
        }
        assert!(at < end, "{lock} locks are still held after {PATIENCE:?}");
    }
}

/// Every job is queued once, and nothing of the dead is left.
async fn check(redis: &mut MultiplexedConnection, dead: &[Worker]) {
    let jobs: Vec<String> =
        redis::cmd("LRANGE").arg("mass:jobs:mail").arg(0).arg(-1).query_async(redis).await.expect("jobs");
    let mut times = HashMap::new();
    for job in &jobs {
        *times.entry(job.as_str()).or_insert(0) += 1;
    }
    let wanted: Vec<String> = dead.iter().map(|worker| workers::job("mail", &worker.pool)).collect();
    assert!(wanted.iter().all(|job| times.get(job.as_str()) == Some(&1)), "each job is queued exactly once");
    let info: HashMap<String, i64> =
        redis::cmd("HGETALL").arg("mass:jobs:mail:lock_info").query_async(redis).await.expect("lock info");
    assert!(info.values().all(|count| *count == 0), "no lock count is left");
    redis::cmd("DEL").arg("mass:jobs:mail").query_async::<()>(redis).await.expect("an empty queue");
    crate::support::kube::wait_for("the pools to be forgotten", PATIENCE, || async {
        let left: usize = redis::cmd("SCARD").arg("mass:worker_pools").query_async(&mut redis.clone()).await.ok()?;
        (left == 0).then_some(())
    })
    .await;
}
