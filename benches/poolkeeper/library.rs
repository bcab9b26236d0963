//! The library's own reaper beside poolkeeper: the same two kinds of kill of a real gocraft/work program.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kube::Client;
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};

use crate::figures::{Table, Times, ms};
use crate::operator::{Operator, folder};
use crate::support::kube::wait_for;
use crate::support::pods::now;
use crate::support::redis::RedisServer;
use crate::workers::{self, Queue, Worker};

/// Its reaper runs 10 s after a pool's start, and then every 10 to 10.5 minutes.
const LIBRARY_BOUND: Duration = Duration::from_secs(12 * 60);
const PATIENCE: Duration = Duration::from_secs(60);
const OUTSIDER_BOUND: Duration = Duration::from_secs(120);
const NAMESPACE: &str = "library";

/// A gocraft/work program with a host name of its own.
struct Program {
    process: Child,
    pool: String,
}

impl Program {
    /// Starts one, and waits until it said which pool it is.
    async fn start(server: &RedisServer, host: &str) -> Self {
        let program = std::env::var_os("BENCH_WORKER").expect("BENCH_WORKER is not set; run hack/bench");
        let log = folder().join(format!("worker-{host}-{}.log", server.port));
        let mut command = Command::new("unshare");
        if is_root() {
            command.arg("--uts");
        } else {
            command.args(["--map-root-user", "--uts"]);
        }
        let process = command
            .args(["sh", "-c", "hostname \"$1\" && exec \"$2\"", "sh", host])
            .arg(program)
            .env("REDIS_URL", server.url())
            .env("WORK_NAMESPACE", NAMESPACE)
            .env("WORK_CONCURRENCY", "2")
            .env("WORK_JOBS", "mail:2")
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&log).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .expect("a worker starts");
        let pool = wait_for("a worker's first line", PATIENCE, || async {
            let lines = std::fs::read_to_string(&log).ok()?;
            let first: Value = serde_json::from_str(lines.lines().next()?).ok()?;
            first["pool"].as_str().map(str::to_owned)
        })
        .await;
        Self { process, pool }
    }

    /// SIGKILL; when it was sent.
    fn kill(&mut self) -> Instant {
        let at = Instant::now();
        self.process.kill().expect("a worker");
        self.process.wait().expect("a worker");
        at
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether this process is root.
fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .is_some_and(|ids| ids.split_whitespace().nth(1) == Some("0"))
}

/// Puts two long jobs into the queue, and waits until this worker runs both: its cap is taken.
async fn occupied(redis: &MultiplexedConnection, pool: &str) {
    let mut pipe = redis::pipe();
    for number in 0..2 {
        let job = json!({"name": "mail", "id": format!("{pool}-{number}"), "t": now(), "args": {"ms": 1_800_000}});
        pipe.lpush(format!("{NAMESPACE}:jobs:mail"), job.to_string()).ignore();
    }
    pipe.query_async::<()>(&mut redis.clone()).await.expect("two jobs");
    wait_for("a worker that runs two jobs", PATIENCE, || async { (held(redis, pool).await == (2, 2)).then_some(()) })
        .await;
}

/// How many jobs a pool holds, and how many locks.
async fn held(redis: &MultiplexedConnection, pool: &str) -> (i64, i64) {
    let (jobs, locks): (i64, Option<i64>) = redis::pipe()
        .llen(format!("{NAMESPACE}:jobs:mail:{pool}:inprogress"))
        .hget(format!("{NAMESPACE}:jobs:mail:lock_info"), pool)
        .query_async(&mut redis.clone())
        .await
        .expect("counts");
    (jobs, locks.unwrap_or(0))
}

/// How long after `killed` the pool held nothing any more; `None` after `bound`.
async fn freed(redis: &MultiplexedConnection, pool: &str, killed: Instant, bound: Duration) -> Option<Duration> {
    let mut ticks = tokio::time::interval(Duration::from_millis(2));
    while killed.elapsed() < bound {
        ticks.tick().await;
        if held(redis, pool).await == (0, 0) {
            return Some(killed.elapsed());
        }
    }
    None
}

fn shown(freed: Option<Duration>, bound: Duration) -> String {
    freed.map_or_else(|| format!("not within {}", ms(bound)), ms)
}

/// Without poolkeeper, while another worker of the same program lives on. Takes more than ten minutes.
pub async fn with_a_survivor() -> String {
    let server = RedisServer::start().await;
    let redis = server.connection().await;
    let mut victim = Program::start(&server, "library-a").await;
    occupied(&redis, &victim.pool).await;
    let survivor = Program::start(&server, "library-b").await;
    // The survivor's first look is 10 s after its start; a worker dies at any other time.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let killed = victim.kill();
    let freed = freed(&redis, &victim.pool, killed, LIBRARY_BOUND).await;
    drop(survivor);
    shown(freed, LIBRARY_BOUND)
}

/// Without poolkeeper, and the killed worker is started again a second later, as a kubelet does.
pub async fn with_a_replacement() -> String {
    let server = RedisServer::start().await;
    let redis = server.connection().await;
    let mut victim = Program::start(&server, "library-c").await;
    occupied(&redis, &victim.pool).await;
    let killed = victim.kill();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let replacement = Program::start(&server, "library-c").await;
    let freed = freed(&redis, &victim.pool, killed, LIBRARY_BOUND).await;
    drop(replacement);
    shown(freed, LIBRARY_BOUND)
}

/// The same kill with poolkeeper: of a worker in a pod, and of one on a host that is no pod.
pub async fn with_poolkeeper(client: &Client, lease: &str, rounds: usize) -> (Times, String) {
    let server = RedisServer::start().await;
    let url = server.url();
    let redis = server.connection().await;
    let namespace = workers::namespace(client, "library").await;
    let operator = Operator::start(lease).await;
    let queue = Queue {
        namespace: &namespace,
        name: NAMESPACE,
        url: &url,
        jobs: json!([{"name": "mail", "maxConcurrency": 2}]),
    };
    queue.pods(client, 0, rounds).await;
    queue.apply(client, true).await;
    let mut times = Times::default();
    for round in 0..rounds {
        let host = format!("{NAMESPACE}-{round}");
        let mut program = Program::start(&server, &host).await;
        let pod = Worker { namespace: namespace.clone(), pod: host, prefix: NAMESPACE.into(), pool: queue.pool(round) };
        occupied(&redis, &program.pool).await;
        wait_for("a binding", PATIENCE, || async {
            let mut bound = redis::cmd("HEXISTS");
            bound.arg(format!("{NAMESPACE}:poolkeeper:bindings")).arg(&program.pool);
            bound.query_async::<bool>(&mut redis.clone()).await.ok()?.then_some(())
        })
        .await;
        // The library writes `started_at` in whole seconds; ended in the same one, the two can't be told apart.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let killed = program.kill();
        let (freed, ()) = tokio::join!(freed(&redis, &program.pool, killed, PATIENCE), pod.dies(client));
        times.add(freed.expect("a reap"));
        redis::cmd("DEL")
            .arg(format!("{NAMESPACE}:jobs:mail"))
            .query_async::<()>(&mut redis.clone())
            .await
            .expect("an empty queue");
    }
    let mut outsider = Program::start(&server, "laptop").await;
    occupied(&redis, &outsider.pool).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let killed = outsider.kill();
    let freed = freed(&redis, &outsider.pool, killed, OUTSIDER_BOUND).await;
    drop(operator);
    workers::clear(client, &[namespace]).await;
    (times, shown(freed, OUTSIDER_BOUND))
}

/// The table, once all is known; `survivor` is `None` where nobody waited.
pub fn table(with_poolkeeper: &(Times, String), replacement: &str, survivor: Option<&str>) -> String {
    let mut table = Table::new(["", "killed with two jobs, cap 2 taken", "locks free and jobs queued after"]);
    let mut row = |who: &str, what: &str, after: String| table.row([who.to_owned(), what.to_owned(), after]);
    let (times, outsider) = with_poolkeeper;
    let [count, p50, _, max] = times.cells();
    row("poolkeeper", "a worker in a pod", format!("{p50} (median of {count}; at most {max})"));
    row("poolkeeper", "a worker on a host that is no pod (`outsiderTimeoutSeconds: 60`)", outsider.clone());
    row("gocraft/work v0.5.1 alone", "a worker that is started again after 1 s", replacement.to_owned());
    let waited = survivor.unwrap_or("not measured (QUICK=1); its reaper runs every 10 to 10.5 minutes");
    row("gocraft/work v0.5.1 alone", "a worker that is not started again; another one lives on", waited.to_owned());
    table.below(
        "Beside the library's own reaper",
        "Real gocraft/work programs (`examples/gocraft-worker`), killed with SIGKILL. The pod's status is patched right after the kill; a real kubelet takes 60 to 980 ms more to report it.",
    )
}
