//! Beside KEDA: the same queues, jobs and workers on one cluster with a real kubelet, half of them scaled by poolkeeper
//! and half by KEDA, at the same time. `hack/bench-with-keda` installs both.

mod rounds;
mod side;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;

use self::rounds::{BURSTS, Bursts, CAPPED, CAPPED_JOBS, Capped, LONG_JOBS, LONG_MS, LongJobs, MIXED};
use self::side::{CALM_SECONDS, POLLING_SECONDS, Scaler, Side};
use crate::audit::requests;
use crate::figures::{Table, Times, ms};

/// Whose requests are whose: a name, the user, a part of the user agent.
const WHO: [(&str, &str, &str); 4] = [
    ("poolkeeper, both replicas", "system:serviceaccount:poolkeeper-system:poolkeeper", ""),
    ("KEDA's operator", "system:serviceaccount:keda:keda-operator", "keda/"),
    ("KEDA's metrics adapter", "system:serviceaccount:keda:keda-operator", "keda-adapter/"),
    ("the HPA controller, for KEDA", "system:serviceaccount:kube-system:horizontal-pod-autoscaler", ""),
];

/// All of it. `quick`: one round of loads instead of four.
pub async fn all(client: &Client, quick: bool) -> String {
    let sides = [Side::new(client, Scaler::Poolkeeper).await, Side::new(client, Scaler::Keda).await];
    for side in &sides {
        for queue in BURSTS.iter().chain(&MIXED).chain([&CAPPED]) {
            side.apply(queue).await;
        }
    }
    let rest = if quick { 20 } else { 60 };
    let mut calls = Table::new(["while", "whose requests to the API server", "requests a minute", "of them writes"]);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let from = Timestamp::now();
    tokio::time::sleep(Duration::from_secs(rest)).await;
    count("7 queues at rest", from, &mut calls);

    let from = Timestamp::now();
    let mut bursts = [Bursts::default(), Bursts::default()];
    for round in 0..if quick { 1 } else { 4 } {
        rounds::burst_round(&sides, round, &mut bursts).await;
    }
    count("loads come to 3 of them, and are done", from, &mut calls);
    let capped = rounds::capped_round(&sides).await;
    let cut = rounds::mixed_round(&sides).await;
    let memory = memory(client).await;
    let tables = bursts_table(&sides, &bursts) + &cut_table(&sides, &cut) + &capped_table(&sides, &capped);
    for side in sides {
        side.namespace.delete().await;
    }
    let calls_note = "By the API server's audit log. A watch counts once, when it begins. KEDA's HPAs are worked on by the HPA controller; nothing else here has an HPA.";
    tables
        + &calls.below("Beside KEDA: requests to the API server", calls_note)
        + &memory.below(
            "Beside KEDA: memory",
            "Of the processes, at the end, by the kernel. As each is installed by its own manifests: two replicas of poolkeeper; one operator and one metrics adapter of KEDA, without its admission webhooks.",
        )
}

fn count(what: &str, from: Timestamp, table: &mut Table) {
    let to = Timestamp::now();
    let minutes = to.duration_since(from).as_secs_f64() / 60.0;
    for (name, user, agent) in WHO {
        let asked = requests(user, agent, from, to);
        let a_minute = |count: usize| format!("{:.0}", count as f64 / minutes);
        table.row([what.to_owned(), name.to_owned(), a_minute(asked.all), a_minute(asked.writes)]);
    }
}

async fn memory(client: &Client) -> Table {
    let mut table = Table::new(["pod", "resident", "peak"]);
    for namespace in ["poolkeeper-system", "keda"] {
        for (pod, resident, peak) in side::memory(client, namespace).await {
            table.row([pod, format!("{resident:.1} MiB"), format!("{peak:.1} MiB")]);
        }
    }
    table
}

/// What is told of a load, and where it is.
type Kind = (&'static str, fn(&Bursts) -> &Times);

fn bursts_table(sides: &[Side; 2], bursts: &[Bursts; 2]) -> String {
    let mut table =
        Table::new(["from the jobs being put into a queue with no pods", "", "loads", "p50", "least", "most"]);
    let kinds: [Kind; 6] = [
        ("to the first replica asked for", |one| &one.asked),
        ("to the first pod Ready", |one| &one.first_ready),
        ("to all 5 replicas asked for", |one| &one.enough_asked),
        ("to all 5 pods Ready", |one| &one.enough_ready),
        ("to the last job done", |one| &one.done),
        ("(from the last job done to no replica asked for)", |one| &one.zero),
    ];
    for (what, of) in kinds {
        for (side, bursts) in sides.iter().zip(bursts) {
            let times = of(bursts);
            let [p50, most] = times.middle_and_most();
            table.row([what.into(), side.scaler.name(), times.count().to_string(), p50, ms(times.quantile(0.0)), most]);
        }
    }
    table.below(
        "Beside KEDA: from zero to enough",
        &format!(
            "One cluster with a kubelet; the same queues, jobs and worker program for both, each in its own namespace with its own Redis, at the \
             same time. 60 jobs of 3 s come at once to a queue without pods; a pod runs 2, and at most 5 pods may be. KEDA's settings: \
             `pollingInterval: {POLLING_SECONDS}` (its default is 30), `listLength: 2` as poolkeeper's `jobsPerReplica`, and `cooldownPeriod` and the HPA's \
             scale-down stabilization {CALM_SECONDS} s as poolkeeper's `scaleDownStabilizationSeconds`. From 1 to 5 it is the HPA controller that scales, every \
             15 s, by KEDA's metrics adapter. Redis is looked at 5 times a second for the last job done."
        ),
    )
}

fn cut_table(sides: &[Side; 2], cut: &[LongJobs; 2]) -> String {
    let mut table = Table::new([
        "",
        "long jobs",
        "ended undisturbed",
        "cut off by scaling down",
        "of these begun again",
        "of these left in progress, with no pod",
    ]);
    for (side, cut) in sides.iter().zip(cut) {
        let counts = [cut.long, cut.undisturbed, cut.cut, cut.again, cut.stranded];
        table.row([side.scaler.name()].into_iter().chain(counts.map(|count| count.to_string())));
    }
    let pods = cut.map(|cut| cut.pods);
    table.below(
        "Beside KEDA: jobs cut off when it is scaled down",
        &format!(
            "3 queues with {LONG_JOBS} jobs of {} s and 20 of 2 s each; a pod runs one job, and has 5 s to end when it is deleted. When the short ones were \
             done, poolkeeper had {} pods and KEDA {}, with nothing waiting; KEDA sees the waiting jobs only. By the workers' own logs.",
            LONG_MS / 1000,
            pods[0],
            pods[1],
        ),
    )
}

fn capped_table(sides: &[Side; 2], capped: &[Capped; 2]) -> String {
    let mut table =
        Table::new(["", "pods at the peak", "of them can only idle", "pod-seconds", "until the last job was done"]);
    for (side, capped) in sides.iter().zip(capped) {
        let idle = capped.peak.saturating_sub(1);
        let seconds = format!("{:.0}", capped.pod_seconds);
        table.row([side.scaler.name(), capped.peak.to_string(), idle.to_string(), seconds, ms(capped.done)]);
    }
    table.below(
        "Beside KEDA: a backlog behind a cap",
        &format!(
            "{CAPPED_JOBS} jobs of 1 s, of which the cap (max concurrency 2, set by the workers themselves too) lets 2 run at once; a pod runs 2, so one pod does. \
             `jobsPerReplica` and `listLength` 10, at most 10 pods. Pods that are ending count."
        ),
    )
}
