//! A Redis with a namespace `work`, and what gocraft/work programs would have written there.

use std::collections::BTreeMap;

use poolkeeper::protocol::gocraft_work::settle::{CoveredPool, DeadPool, Judged};
use poolkeeper::protocol::gocraft_work::{GocraftWork, Namespace, Observer};
use poolkeeper::protocol::{EpochSeconds, JobTypeName, Observation, PoolId, Speaker};
use redis::aio::MultiplexedConnection;

use crate::support::redis::{RedisServer, line, run};

pub struct Fixture {
    pub server: RedisServer,
    pub work: GocraftWork,
    pub redis: MultiplexedConnection,
}

pub fn speaker(uid: &str, generation: i64) -> Speaker {
    Speaker { field: "home/JobQueue/default/mail".into(), uid: uid.into(), generation }
}

impl Fixture {
    pub async fn new() -> Self {
        Self::with(&[]).await
    }

    pub async fn with(args: &[&str]) -> Self {
        let server = RedisServer::start_with(args).await;
        let redis = server.connection().await;
        let work = GocraftWork::new(server.client(), Namespace::new("work"), speaker("u1", 1));
        Self { server, work, redis }
    }

    pub async fn line<T: redis::FromRedisValue>(&mut self, command: &str) -> T {
        line(&mut self.redis, command).await
    }

    /// A beat, as the library writes it.
    pub async fn beat(&mut self, pool: &str, at: i64, job_names: &str) {
        self.line::<()>(&format!("SADD work:worker_pools {pool}")).await;
        self.line::<()>(&format!(
            "HSET work:worker_pools:{pool} heartbeat_at {at} started_at 1000 job_names {job_names} concurrency 4 \
             worker_ids w1 host web-1 pid 1"
        ))
        .await;
    }

    /// Jobs that a pool took, the last one taken last.
    pub async fn running(&mut self, job_type: &str, pool: &str, jobs: &[&str]) {
        for job in jobs {
            run::<(), _>(&mut self.redis, ["LPUSH", &format!("work:jobs:{job_type}:{pool}:inprogress"), job]).await;
        }
    }

    pub async fn locks(&mut self, job_type: &str, lock: i64, info: &[(&str, i64)]) {
        self.line::<()>(&format!("SET work:jobs:{job_type}:lock {lock}")).await;
        for (pool, count) in info {
            self.line::<()>(&format!("HSET work:jobs:{job_type}:lock_info {pool} {count}")).await;
        }
    }

    pub async fn list(&mut self, key: &str) -> Vec<String> {
        self.line(&format!("LRANGE {key} 0 -1")).await
    }

    pub async fn lock(&mut self, job_type: &str) -> Option<i64> {
        self.line(&format!("GET work:jobs:{job_type}:lock")).await
    }

    pub async fn info(&mut self, job_type: &str) -> BTreeMap<String, i64> {
        self.line(&format!("HGETALL work:jobs:{job_type}:lock_info")).await
    }

    pub async fn observe(&self) -> Observation {
        Observer::default().observe(&self.work).await.unwrap()
    }

    /// Everything in Redis, to show that nothing changed.
    pub async fn dump(&mut self) -> BTreeMap<String, Vec<u8>> {
        let keys: Vec<String> = self.line("KEYS *").await;
        let mut dump = BTreeMap::new();
        for key in keys {
            let bytes = run(&mut self.redis, ["DUMP", key.as_str()]).await;
            dump.insert(key, bytes);
        }
        dump
    }
}

pub fn dead(ids: &[&str]) -> Vec<DeadPool> {
    ids.iter().map(|id| DeadPool::certain(PoolId::from(*id))).collect()
}

pub fn silent(id: &str, heartbeat_at: i64) -> DeadPool {
    DeadPool { judged: Judged::Silent(EpochSeconds(heartbeat_at)), ..DeadPool::certain(id.into()) }
}

pub fn unknown(id: &str) -> DeadPool {
    DeadPool { judged: Judged::Absent { listed: false }, ..DeadPool::certain(id.into()) }
}

/// The set of worker pools names it, but it has no heartbeat.
pub fn beatless(id: &str) -> DeadPool {
    DeadPool { judged: Judged::Absent { listed: true }, ..DeadPool::certain(id.into()) }
}

pub fn living(ids: &[&str]) -> Vec<CoveredPool> {
    ids.iter().map(|id| CoveredPool { id: PoolId::from(*id), stranded: 0 }).collect()
}

pub fn job_type(name: &str) -> JobTypeName {
    name.into()
}

pub fn job(name: &str, id: &str) -> String {
    format!(r#"{{"name":"{name}","id":"{id}","t":1774958400,"args":{{"n":1}}}}"#)
}
