//! From the first job of a queue without workers to the replica that is asked for, and what watching for it costs.

mod field;

use std::path::Path;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use redis::aio::MultiplexedConnection;

use self::field::Field;
use crate::audit::requests;
use crate::figures::{Table, ms};
use crate::identity;
use crate::operator::Operator;
use crate::scale::Moment;

/// Until what the start or the freezing left behind has been said and done.
const SETTLE_DOWN: Duration = Duration::from_secs(20);
/// How many queues at the most are left without workers while the others are busy.
const RESTING: usize = 50;

/// Ten, a hundred and a thousand queues. `quick`: fewer pushes, shorter looks.
pub async fn all(client: &Client, lease: &str, quick: bool) -> String {
    let mut tables = Tables::default();
    let identity = identity::of_the_operator(client, lease).await;
    for queues in [10, 100, 1000] {
        with(client, lease, (&identity.0, &identity.1), queues, quick, &mut tables).await;
    }
    tables.shown()
}

struct Tables {
    times: Table,
    costs: Table,
    bursts: Table,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            times: Table::new(["JobQueues", "the others", "first jobs", "p50", "p99", "max"]),
            costs: Table::new([
                "JobQueues",
                "while",
                "resident",
                "peak",
                "processor",
                "commands to Redis a second",
                "requests to the API server a second",
                "of them writes",
            ]),
            bursts: Table::new(["first jobs, all at once", "until the last Deployment was patched"]),
        }
    }
}

impl Tables {
    fn shown(&self) -> String {
        self.times.below(
            "From zero: the first job",
            "A job is put into the queue of a JobQueue whose Deployment has no replicas; the benchmark's watch of the Deployments notes \
             when `spec.replicas` is 1. One after the other, each in a queue that has been at rest for 3 s, by chance. At rest: no other \
             queue has jobs or workers, but for those that go back to zero. Busy: each of the others has a pod whose pool beats and runs \
             a job, and gets another job every 10 s; up to 50 queues stay at rest and get the first jobs. Stalled: one queue in ten has a \
             Redis of its own, and all of these are stopped (SIGSTOP), while the others are busy. Aim: p99 1 s at 1,000.",
        ) + &self.bursts.below("From zero: all at once", "The jobs are put into the queues one after the other, without a pause.")
            + &self.costs.below(
                "What scaling costs",
                "By the kernel, by the shared Redis (what the operator sends, without what its scripts do) and by the API server's audit \
                 log. Processor is of one core. Renewing the Lease is among the writes.",
            )
    }
}

/// One operator, and what is asked of it.
struct Costs<'a> {
    operator: &'a Operator,
    user: &'a str,
    redis: MultiplexedConnection,
    queues: usize,
}

impl Costs<'_> {
    async fn during<T>(&mut self, what: &str, table: &mut Table, doing: impl Future<Output = T>) -> T {
        let (from, before) = (Timestamp::now(), Moment::now(self.operator, &mut self.redis).await);
        let done = doing.await;
        let (to, after) = (Timestamp::now(), Moment::now(self.operator, &mut self.redis).await);
        let seconds = (after.usage.at - before.usage.at).as_secs_f64();
        let processor = after.usage.processor.saturating_sub(before.usage.processor).as_secs_f64();
        let asked = requests(self.user, "", from, to);
        let a_second = |count: f64| format!("{:.1}", count / seconds);
        table.row([
            self.queues.to_string(),
            what.to_owned(),
            format!("{:.1} MiB", after.usage.resident),
            format!("{:.1} MiB", after.usage.peak),
            format!("{:.1} %", processor / seconds * 100.0),
            a_second((after.sent() - before.sent()) as f64),
            a_second(asked.all as f64),
            a_second(asked.writes as f64),
        ]);
        done
    }
}

async fn with(client: &Client, lease: &str, as_whom: (&str, &Path), queues: usize, quick: bool, tables: &mut Tables) {
    let (pushes, look) = if quick { (50, Duration::from_secs(15)) } else { (100, Duration::from_secs(30)) };
    let mut field = Field::new(client, queues).await;
    let operator = Operator::start_as(lease, as_whom.1).await;
    field.ready().await;
    tokio::time::sleep(SETTLE_DOWN).await;
    let redis = field.shared.connection().await;
    let mut costs = Costs { operator: &operator, user: as_whom.0, redis, queues };

    costs.during("all are at rest", &mut tables.costs, tokio::time::sleep(look)).await;
    let times = costs.during("first jobs come, the others rest", &mut tables.costs, field.first_jobs(pushes)).await;
    tables.times.row([queues.to_string(), "at rest".into()].into_iter().chain(times.cells()));

    let (busy, burst) = field.keep_busy(RESTING.min(queues / 2)).await;
    tables.bursts.row([busy.to_string(), ms(burst)]);
    tokio::time::sleep(SETTLE_DOWN).await;
    costs.during("most are busy", &mut tables.costs, tokio::time::sleep(look)).await;
    let times = costs.during("first jobs come, the others are busy", &mut tables.costs, field.first_jobs(pushes)).await;
    tables.times.row([queues.to_string(), format!("{busy} busy")].into_iter().chain(times.cells()));

    field.freeze();
    tokio::time::sleep(SETTLE_DOWN).await;
    let stalled = field.apart.len();
    let times = costs.during("the same, and one in ten stalled", &mut tables.costs, field.first_jobs(pushes)).await;
    tables.times.row([queues.to_string(), format!("{busy} busy, {stalled} stalled")].into_iter().chain(times.cells()));

    drop(operator);
    field.clear().await;
}
