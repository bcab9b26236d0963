//! Worker pools as gocraft/work v0.5.1 writes them to Redis, for tests without worker programs.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio_util::task::AbortOnDropHandle;

use super::pods::now;
use super::redis::run;

/// One namespace in one Redis.
#[derive(Clone)]
pub struct Pools {
    /// A connection of the workers.
    pub redis: MultiplexedConnection,
    /// The first part of every key, with its colon.
    pub prefix: String,
}

impl Pools {
    /// A namespace.
    pub fn new(redis: MultiplexedConnection, namespace: &str) -> Self {
        Self { redis, prefix: format!("{namespace}:") }
    }

    /// One beat of a pool.
    pub async fn beat(&self, pool: &str, started_at: i64, host: &str, jobs: &str) {
        let (mut redis, at) = (self.redis.clone(), now().to_string());
        let started_at = started_at.to_string();
        run::<(), _>(&mut redis, ["SADD", &format!("{}worker_pools", self.prefix), pool]).await;
        let key = format!("{}worker_pools:{pool}", self.prefix);
        let fields = [
            "heartbeat_at",
            &at,
            "started_at",
            &started_at,
            "job_names",
            jobs,
            "concurrency",
            "4",
            "worker_ids",
            "w",
            "host",
            host,
            "pid",
            "1",
        ];
        run::<(), _>(&mut redis, ["HSET", key.as_str()].into_iter().chain(fields)).await;
    }

    /// A pool that beats every second until the handle is dropped.
    pub async fn beating(&self, pool: &str, started_at: i64, host: &str, jobs: &str) -> AbortOnDropHandle<()> {
        self.beat(pool, started_at, host, jobs).await;
        let (pools, pool, host, jobs) = (self.clone(), pool.to_owned(), host.to_owned(), jobs.to_owned());
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut seconds = tokio::time::interval(Duration::from_secs(1));
            loop {
                seconds.tick().await;
                pools.beat(&pool, started_at, &host, &jobs).await;
            }
        }))
    }

    /// Jobs that a pool took and runs: list, lock and lock info, as the library's fetch leaves them.
    pub async fn takes(&self, pool: &str, job_type: &str, ids: &[&str]) {
        let mut redis = self.redis.clone();
        let base = format!("{}jobs:{job_type}", self.prefix);
        run::<(), _>(&mut redis, ["SADD", &format!("{}known_jobs", self.prefix), job_type]).await;
        for id in ids {
            run::<(), _>(&mut redis, ["LPUSH", &format!("{base}:{pool}:inprogress"), &job(job_type, id)]).await;
            run::<(), _>(&mut redis, ["INCR", &format!("{base}:lock")]).await;
            run::<(), _>(&mut redis, ["HINCRBY", &format!("{base}:lock_info"), pool, "1"]).await;
        }
    }

    /// The ids of the waiting jobs, the next one first.
    pub async fn waiting(&self, job_type: &str) -> Vec<String> {
        let list: Vec<String> =
            run(&mut self.redis.clone(), ["LRANGE", &format!("{}jobs:{job_type}", self.prefix), "0", "-1"]).await;
        list.iter().rev().map(|text| id_of(text)).collect()
    }

    /// The lock count.
    pub async fn lock(&self, job_type: &str) -> i64 {
        let count: Option<i64> =
            run(&mut self.redis.clone(), ["GET", &format!("{}jobs:{job_type}:lock", self.prefix)]).await;
        count.unwrap_or(0)
    }

    /// Lock counts by pool.
    pub async fn lock_info(&self, job_type: &str) -> std::collections::BTreeMap<String, i64> {
        run(&mut self.redis.clone(), ["HGETALL", &format!("{}jobs:{job_type}:lock_info", self.prefix)]).await
    }

    /// Whether the set of worker pools names it.
    pub async fn knows(&self, pool: &str) -> bool {
        run(&mut self.redis.clone(), ["SISMEMBER", &format!("{}worker_pools", self.prefix), pool]).await
    }

    /// The ids in the set of worker pools.
    pub async fn ids(&self) -> Vec<String> {
        run(&mut self.redis.clone(), ["SMEMBERS", &format!("{}worker_pools", self.prefix)]).await
    }

    /// A second that its heartbeat tells, `heartbeat_at` or `started_at`.
    pub async fn second_of(&self, pool: &str, field: &str) -> i64 {
        run(&mut self.redis.clone(), ["HGET", &format!("{}worker_pools:{pool}", self.prefix), field]).await
    }

    /// Whether poolkeeper has bound it to a container.
    pub async fn is_bound(&self, pool: &str) -> bool {
        run(&mut self.redis.clone(), ["HEXISTS", &format!("{}poolkeeper:bindings", self.prefix), pool]).await
    }

    /// Max concurrency of a type.
    pub async fn cap(&self, job_type: &str) -> Option<String> {
        run(&mut self.redis.clone(), ["GET", &format!("{}jobs:{job_type}:max_concurrency", self.prefix)]).await
    }

    /// Somebody sets a key.
    pub async fn set(&self, key: &str, value: &str) {
        run::<(), _>(&mut self.redis.clone(), ["SET", &format!("{}{key}", self.prefix), value]).await;
    }
}

/// A job as Go writes it.
pub fn job(name: &str, id: &str) -> String {
    format!(r#"{{"name":"{name}","id":"{id}","t":1774958400,"args":{{"n":393087288629462191,"tags":[]}}}}"#)
}

fn id_of(text: &str) -> String {
    let job: serde_json::Value = serde_json::from_str(text).expect("a job");
    job["id"].as_str().expect("an id").to_owned()
}
