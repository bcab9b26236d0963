//! Redis at its worst moments: nothing is decided by what it can't tell.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::Stage;
use super::scaling::scaled;
use crate::support::kube::{condition, wait_for};
use crate::support::pods::deployment;
use crate::support::pools::Pools;
use crate::support::redis::{RedisServer, line, run};

/// Two kilobytes each, as they are, so that the server answers while it loads them; a tenth of a second for each.
const SLOW_TO_LOAD: [&str; 6] =
    ["--rdbcompression", "no", "--loading-process-events-interval-bytes", "1024", "--key-load-delay", "100000"];
/// Keys; the test ends the loading long before they are through.
const KEYS: usize = 2000;

impl Stage {
    /// A line of Redis's own protocol: a client library would say hello first, which a server that loads refuses.
    async fn raw(&self, command: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.server.port)).await.unwrap();
        stream.write_all(format!("{command}\r\n").as_bytes()).await.unwrap();
        let mut answer = [0; 256];
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut answer)).await;
        String::from_utf8_lossy(&answer[..read.expect("an answer in time").unwrap()]).into_owned()
    }

    /// So many attempts on Redis have failed for this reason.
    async fn failures(&self, operator: &crate::support::operator::Operator, reason: &str, count: f64) {
        let name = &self.namespace.name;
        let line = format!("poolkeeper_failures_total{{namespace=\"{name}\",jobqueue=\"q\",reason=\"{reason}\"}} ");
        wait_for(&format!("{count} failures: {reason}"), Duration::from_secs(60), || async {
            (operator.metric(&line).await? >= count).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_redis_that_loads_its_data_is_not_an_empty_one() {
    let mut stage = Stage::new("loading").await;
    stage.server = RedisServer::start_with(&SLOW_TO_LOAD).await;
    stage.pools = Pools::new(stage.server.connection().await, "work");
    deployment(&stage.namespace, "w", 4).await;
    let operator = stage.operator().await;
    stage.push("mail", 4).await;
    let scaling = json!({"scaleDownStabilizationSeconds": 0, "protectBusyPods": false});
    stage.namespace.job_queue("q", scaled(&stage, scaling)).await.unwrap();
    stage.until_it_scales("q").await;
    let mut redis = stage.server.connection().await;
    for n in 0..KEYS {
        run::<(), _>(&mut redis, ["SET", &format!("pad:{n}"), &"x".repeat(2048)]).await;
    }
    line::<()>(&mut redis, "SAVE").await;

    stage.server.restart().await;
    stage.namespace.status("q", "why", |s| condition(s, "ScalingActive") == ("False", "Loading")).await;
    stage.failures(&operator, "Loading", 4.0).await;
    assert!(stage.raw("GET x").await.starts_with("-LOADING"), "it loads still");
    assert_eq!(stage.replicas().await, 4);
    assert!(stage.raw("CONFIG SET key-load-delay 0").await.starts_with("+OK"));
    // Its jobs are there again, and only their end lowers anything.
    stage.until_it_scales("q").await;
    stage.passes(&operator, "q", 2).await;
    assert_eq!(stage.replicas().await, 4);
    assert_eq!(stage.raw("DEL work:jobs:mail").await, ":1\r\n");
    stage.until_replicas(0, Duration::from_secs(20)).await;
    stage.namespace.delete().await;
}
