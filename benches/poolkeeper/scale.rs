//! What the operator costs at rest: memory, processor, and what it asks of Redis.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use kube::Client;
use redis::aio::MultiplexedConnection;
use serde_json::json;

use crate::deaths;
use crate::figures::Table;
use crate::operator::{Operator, Usage};
use crate::support::redis::RedisServer;
use crate::workers::{self, Queue};

const TYPES: [&str; 3] = ["mail", "report", "sms"];
const PODS_EACH: usize = 5;
const QUEUES_IN_A_NAMESPACE: usize = 50;
/// Until what the start left behind has been said and done.
const SETTLE_DOWN: Duration = Duration::from_secs(30);
/// How long it is looked at.
const REST: Duration = Duration::from_secs(60);
/// What the operator sends at rest.
const SENT: [&str; 5] = ["evalsha", "scan", "ping", "client|caching", "xrange"];
/// Time between passes at rest, by `src/reaper/judge.rs`.
const PASS_EVERY: Duration = Duration::from_millis(2500);

/// One queue and a thousand at rest, and deaths while the thousand are kept.
pub async fn all(client: &Client, lease: &str) -> String {
    let mut costs = Table::new(["JobQueues", "pods", "resident", "peak", "processor", "until all were ready"]);
    let mut calls = Table::new([
        "JobQueues",
        "passes a second",
        "observe scripts a pass",
        "cap scripts a queue and second",
        "SCAN a queue and second",
        "all commands a queue and second",
    ]);
    let mut died = deaths::columns();
    for queues in [1, 1000] {
        rest(client, lease, queues, &mut costs, &mut calls, &mut died).await;
    }
    let note = format!(
        "Each JobQueue has {PODS_EACH} pods (API objects in namespaces of {QUEUES_IN_A_NAMESPACE} JobQueues each), three job types of which one is capped, and a Redis namespace of its own; all share one Redis, and every pool beats every 5 s and runs one job. \
         Read {} s after all were ready, over {} s. Processor is of one core. Aim: 64 MiB at 1,000.",
        SETTLE_DOWN.as_secs(),
        REST.as_secs(),
    );
    let calls_note = "Counted by Redis (`INFO commandstats`), not by poolkeeper. Passes are told by their number in poolkeeper's metrics. An observe script is \
         a pass's round trip; the caps' script runs on the watching connection every 15 s; SCAN looks for lists that nothing names, in steps of 2,000 keys. \
         Aim: 1 round trip a queue and pass.";
    costs.below("At rest: memory and processor", &note)
        + &calls.below("At rest: Redis", calls_note)
        + &died.below(
            "One worker dies, among 5,000",
            "As above, while 1,000 JobQueues with 5,000 pods are kept; a worker of a queue by chance each time.",
        )
}

async fn rest(client: &Client, lease: &str, queues: usize, costs: &mut Table, calls: &mut Table, died: &mut Table) {
    let server = RedisServer::start().await;
    let url = server.url();
    let mut redis = server.connection().await;
    let mut namespaces = Vec::new();
    for _ in 0..queues.div_ceil(QUEUES_IN_A_NAMESPACE) {
        namespaces.push(workers::namespace(client, "rest").await);
    }
    let names: Vec<String> = (0..queues).map(|number| format!("rest-{queues}-{number}")).collect();
    let mut all = Vec::new();
    let wanted = names.iter().enumerate().map(|(number, name)| Queue {
        namespace: &namespaces[number / QUEUES_IN_A_NAMESPACE],
        name,
        url: &url,
        jobs: json!([{"name": "mail", "maxConcurrency": 50}]),
    });
    let made = stream::iter(wanted).map(|queue| async move {
        let pods = queue.pods(client, 0, PODS_EACH).await;
        queue.apply(client, true).await;
        pods
    });
    let mut made = std::pin::pin!(made.buffer_unordered(16));
    while let Some(pods) = made.next().await {
        all.extend(pods);
    }
    workers::pools(&mut redis, &all, &TYPES, 1).await;
    let _beats = workers::beating(&redis, names.clone());
    let began = Instant::now();
    let operator = Operator::start(lease).await;
    for name in &names {
        workers::bound(&redis, name, PODS_EACH).await;
    }
    workers::ready_in(client, &namespaces, queues, Duration::from_secs(600)).await;
    let ready_after = began.elapsed();
    tokio::time::sleep(SETTLE_DOWN).await;
    let before = Moment::now(&operator, &mut redis).await;
    tokio::time::sleep(REST).await;
    let after = Moment::now(&operator, &mut redis).await;
    let seconds = (after.usage.at - before.usage.at).as_secs_f64();
    let processor = after.usage.processor.saturating_sub(before.usage.processor).as_secs_f64();
    costs.row([
        queues.to_string(),
        all.len().to_string(),
        format!("{:.1} MiB", after.usage.resident),
        format!("{:.1} MiB", after.usage.peak),
        format!("{:.1} %", processor / seconds * 100.0),
        format!("{:.0} s", ready_after.as_secs_f64()),
    ]);
    let calls_of = |name: &str| (after.commands_of(name) - before.commands_of(name)) as f64;
    let each = |count: f64| format!("{:.2}", count / seconds / queues as f64);
    let passes = after.passes - before.passes;
    let watching = calls_of("client|caching");
    calls.row([
        queues.to_string(),
        format!("{:.1} (of {:.1} due)", passes / seconds, queues as f64 / PASS_EVERY.as_secs_f64()),
        format!("{:.2}", (calls_of("evalsha") - watching) / passes),
        each(watching),
        each(calls_of("scan")),
        each((after.sent() - before.sent()) as f64),
    ]);
    if queues > 1 {
        let victims: Vec<_> = (0..250).map(|number| all[(number * 7919) % all.len()].clone()).collect();
        deaths::one_by_one(client, &server, &victims).await.rows(died, "1,000 JobQueues, 5,000 pods");
    }
    drop(operator);
    workers::clear(client, &namespaces).await;
}

/// The counts at one moment.
pub struct Moment {
    /// What the operator uses.
    pub usage: Usage,
    /// By the operator's own count.
    passes: f64,
    /// Calls of each command, by the server's own count.
    commands: BTreeMap<String, u64>,
}

impl Moment {
    /// Reads them.
    pub async fn now(operator: &Operator, redis: &mut MultiplexedConnection) -> Self {
        let passes = operator.counter("poolkeeper_passes_total").await;
        let info: String = redis::cmd("INFO").arg("commandstats").query_async(redis).await.expect("INFO");
        let line = |line: &str| -> Option<(String, u64)> {
            let (name, values) = line.strip_prefix("cmdstat_")?.split_once(':')?;
            let calls = values.strip_prefix("calls=")?.split(',').next()?.parse().ok()?;
            Some((name.to_owned(), calls))
        };
        Self { usage: operator.usage(), passes, commands: info.lines().filter_map(line).collect() }
    }

    fn commands_of(&self, name: &str) -> u64 {
        self.commands.get(name).copied().unwrap_or(0)
    }

    /// Calls of the commands that the operator sends, and nobody else here.
    pub fn sent(&self) -> u64 {
        SENT.iter().map(|name| self.commands_of(name)).sum()
    }
}
