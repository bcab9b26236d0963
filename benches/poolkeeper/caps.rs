//! From an overwritten cap to the cap of the spec back in Redis.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::Client;
use rand::Rng as _;
use redis::aio::{MultiplexedConnection, PubSub};
use serde_json::json;

use crate::figures::{Table, Times};
use crate::operator::Operator;
use crate::support::redis::RedisServer;
use crate::workers::{self, Queue};

/// Overwrites of one queue a second, at the most: poolkeeper answers 20 at once and then 5 a second, so that two owners
/// of a key never fight at full speed.
const A_SECOND: u32 = 4;
/// Nobody waits longer than this for a cap.
const PATIENCE: Duration = Duration::from_secs(30);

/// 2,000 overwrites with ten queues, and with a hundred that share the Redis.
pub async fn all(client: &Client, lease: &str) -> String {
    let mut table = Table::new(["JobQueues on the Redis", "overwrites", "p50", "p99", "max"]);
    for queues in [10, 100] {
        let times = measure(client, lease, queues, 2000).await;
        table.row([queues.to_string()].into_iter().chain(times.cells()));
    }
    table.below(
        "An overwritten cap is back",
        "Another client sets a cap, as every starting gocraft/work pool does; a client that is subscribed to the keyspace \
         notifications of the key notes when it is set again. From the SET being sent. Aim: p99 5 ms.",
    )
}

async fn measure(client: &Client, lease: &str, queues: usize, overwrites: usize) -> Times {
    let server = RedisServer::start_with(&["--notify-keyspace-events", "K$"]).await;
    let namespace = workers::namespace(client, "caps").await;
    let names: Vec<String> = (0..queues).map(|number| format!("caps-{queues}-{number}")).collect();
    let url = server.url();
    let mut redis = server.connection().await;
    let operator = Operator::start(lease).await;
    for name in &names {
        let queue =
            Queue { namespace: &namespace, name, url: &url, jobs: json!([{"name": "mail", "maxConcurrency": 2}]) };
        queue.apply(client, false).await;
    }
    for name in &names {
        crate::support::kube::wait_for("a cap", PATIENCE, || async {
            (cap(&mut redis.clone(), name).await.as_deref() == Some("2")).then_some(())
        })
        .await;
    }
    let mut told = subscribe(&server).await;
    let gap = Duration::from_secs(1) / (A_SECOND * queues as u32);
    let mut times = Times::default();
    let mut next = tokio::time::Instant::now();
    for number in 0..overwrites {
        let name = &names[number % names.len()];
        next += gap.mul_f64(rand::rng().random_range(0.5..1.5));
        tokio::time::sleep_until(next).await;
        times.add(overwrite(&mut redis, &mut told, name).await);
    }
    drop(operator);
    workers::clear(client, &[namespace]).await;
    times
}

/// Overwrites one cap; how long until ours was there again.
async fn overwrite(redis: &mut MultiplexedConnection, told: &mut PubSub, name: &str) -> Duration {
    let key = format!("{name}:jobs:mail:max_concurrency");
    let channel = format!("__keyspace@0__:{key}");
    let mut messages = told.on_message();
    let sent = Instant::now();
    redis::cmd("SET").arg(&key).arg(0).query_async::<()>(redis).await.expect("an overwritten cap");
    let mut sets = 0;
    while sets < 2 {
        let message = tokio::time::timeout(PATIENCE, messages.next()).await;
        let message = message.expect("the cap was not put back").expect("the subscribed client");
        sets += usize::from(message.get_channel_name() == channel);
    }
    let took = sent.elapsed();
    drop(messages);
    assert_eq!(cap(redis, name).await.as_deref(), Some("2"), "the second SET is poolkeeper's");
    took
}

async fn cap(redis: &mut MultiplexedConnection, name: &str) -> Option<String> {
    redis::cmd("GET").arg(format!("{name}:jobs:mail:max_concurrency")).query_async(redis).await.expect("a cap")
}

async fn subscribe(server: &RedisServer) -> PubSub {
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut told = client.get_async_pubsub().await.expect("a connection");
    told.psubscribe("__keyspace@0__:*:max_concurrency").await.expect("a subscription");
    told
}
