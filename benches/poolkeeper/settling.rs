//! How long a reaping takes by itself: `reaper::settle::reap` against a Redis, without an API server.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use poolkeeper::protocol::gocraft_work::settle::DeadPool;
use poolkeeper::protocol::gocraft_work::{FenceOp, GocraftWork, Namespace, Observer};
use poolkeeper::protocol::{PoolId, Speaker};
use poolkeeper::reaper::settle::reap;
use redis::aio::MultiplexedConnection;
use serde_json::json;

use crate::figures::{Table, Times, ms};
use crate::support::redis::RedisServer;
use crate::workers::{self, Worker};

/// All of a thousand pools die, with one job type and with ten, and one alone among them.
pub async fn all(rounds: usize) -> String {
    let mut table =
        Table::new(["pools", "job types", "running jobs", "die", "runs", "p50", "max", "scripts", "longest script"]);
    for (types, taken, dead) in [(1, 1, 1000), (10, 1, 1000), (10, 10, 1000), (1, 1, 1), (10, 10, 1)] {
        measure(&mut table, types, taken, dead, rounds).await;
    }
    table.below(
        "Reaping by itself",
        "`reap()` of the release build against Redis on loopback, from the verdict to the last pool forgotten, without an \
         API server and without the read before it. No script should block Redis for more than 5 ms. The longest script is \
         by Redis' slow log, which counts the time that Redis was not given a processor, too: so of all runs, the one in \
         which the longest took least.",
    )
}

async fn measure(table: &mut Table, types: usize, taken: usize, dead: usize, rounds: usize) {
    let names: Vec<String> = (0..types).map(|number| format!("type{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut took, mut longest, mut ran) = (Times::default(), Duration::MAX, 0);
    for _ in 0..rounds {
        let server = RedisServer::start().await;
        let mut redis = server.connection().await;
        let all: Vec<Worker> = (0..1000)
            .map(|number| Worker {
                namespace: String::new(),
                pod: format!("pod-{number}"),
                prefix: "work".into(),
                pool: format!("{number:024x}"),
            })
            .collect();
        workers::pools(&mut redis, &all, &names, taken).await;
        let speaker = Speaker { field: "bench/JobQueue/bench/work".into(), uid: "u".into(), generation: 1 };
        let work = GocraftWork::new(server.client(), Namespace::new("work"), speaker);
        work.fence(FenceOp::Advance).await.expect("a fence");
        let observation = Observer::default().observe(&work).await.expect("an observation");
        // Both scripts are loaded, as they are in an operator that has reaped before.
        reap(&work, &observation, &[], &BTreeMap::new()).await.expect("an audit");
        work.forget(&[dead_pool("nobody")], &[]).await.expect("nobody to forget");
        for setting in ["slowlog-log-slower-than", "slowlog-max-len"] {
            let value = if setting == "slowlog-max-len" { 100_000 } else { 0 };
            redis::cmd("CONFIG")
                .arg("SET")
                .arg(setting)
                .arg(value)
                .query_async::<()>(&mut redis)
                .await
                .expect("a setting");
        }
        redis::cmd("SLOWLOG").arg("RESET").query_async::<()>(&mut redis).await.expect("an empty log");
        let pools: Vec<DeadPool> = all[..dead].iter().map(|worker| dead_pool(&worker.pool)).collect();
        let began = Instant::now();
        let reaped = reap(&work, &observation, &pools, &BTreeMap::new()).await.expect("a reaping");
        took.add(began.elapsed());
        assert!(reaped.is_complete(), "{reaped:?}");
        let jobs: u64 = reaped.pools.values().map(|pool| pool.jobs).sum();
        assert_eq!(jobs, (dead * taken) as u64, "every job went back");
        let scripts = scripts(&mut redis).await;
        ran = scripts.len();
        longest = longest.min(scripts.into_iter().max().unwrap_or_default());
    }
    let [middle, most] = took.middle_and_most();
    table.row([
        "1,000".into(),
        types.to_string(),
        (1000 * taken).to_string(),
        dead.to_string(),
        rounds.to_string(),
        middle,
        most,
        ran.to_string(),
        ms(longest),
    ]);
}

fn dead_pool(id: &str) -> DeadPool {
    let detail = json!({"proof": "ContainerEnded", "pod": "pod-of-a-usual-length-6c9f7d5b8-x2x7k", "container": "worker",
        "why": "container worker of pod pod-of-a-usual-length-6c9f7d5b8-x2x7k ended: OOMKilled, exit code 137"});
    DeadPool { detail, ..DeadPool::certain(PoolId::from(id)) }
}

/// How long each script took in Redis.
async fn scripts(redis: &mut MultiplexedConnection) -> Vec<Duration> {
    let entries: Vec<redis::Value> =
        redis::cmd("SLOWLOG").arg("GET").arg(-1).query_async(redis).await.expect("the log");
    let script = |entry: redis::Value| -> Option<Duration> {
        let redis::Value::Array(fields) = entry else { return None };
        let took: u64 = redis::from_redis_value(fields.get(2)?.clone()).ok()?;
        let words: Vec<String> = redis::from_redis_value(fields.get(3)?.clone()).ok()?;
        (words.first()? == "EVALSHA").then(|| Duration::from_micros(took))
    };
    entries.into_iter().filter_map(script).collect()
}
