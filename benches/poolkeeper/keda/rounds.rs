//! What both sides are put through at the same time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::future::join_all;
use rand::Rng as _;
use tokio::time::sleep;

use super::side::{Queue, Side};
use crate::figures::Times;
use crate::watched::Number;

/// Nobody waits longer than this for pods.
const PATIENCE: Duration = Duration::from_secs(240);

/// Queues that get a load of jobs when they have no pods.
pub const BURSTS: [Queue; 3] = [burst("burst-a", 1), burst("burst-b", 2), burst("burst-c", 3)];
const BURST_JOBS: usize = 60;
const BURST_MS: u64 = 3000;

const fn burst(name: &'static str, database: u8) -> Queue {
    Queue { name, database, concurrency: 2, max_replicas: 5, jobs_per_replica: 2, cap: 0, grace_seconds: 30 }
}

/// Queues with some jobs that take much longer than the others.
pub const MIXED: [Queue; 3] = [mixed("mixed-a", 4), mixed("mixed-b", 5), mixed("mixed-c", 6)];
/// How many of the jobs in each are long.
pub const LONG_JOBS: usize = 2;
/// How long these take.
pub const LONG_MS: u64 = 120_000;
const SHORT_JOBS: usize = 20;
const SHORT_MS: u64 = 2000;

const fn mixed(name: &'static str, database: u8) -> Queue {
    Queue { name, database, concurrency: 1, max_replicas: 5, jobs_per_replica: 1, cap: 0, grace_seconds: 5 }
}

/// A queue whose cap lets no more jobs run than one pod does.
pub const CAPPED: Queue = Queue {
    name: "capped",
    database: 7,
    concurrency: 2,
    max_replicas: 10,
    jobs_per_replica: 10,
    cap: 2,
    grace_seconds: 30,
};
/// Its backlog.
pub const CAPPED_JOBS: usize = 100;
const CAPPED_MS: u64 = 1000;

/// What a side did with loads at zero pods.
#[derive(Default)]
pub struct Bursts {
    /// From the jobs to the first replica asked for.
    pub asked: Times,
    /// To the first pod that is Ready.
    pub first_ready: Times,
    /// To as many replicas asked for as the load needs.
    pub enough_asked: Times,
    /// To as many pods that are Ready.
    pub enough_ready: Times,
    /// To the last job done.
    pub done: Times,
    /// From the last job done to no replica asked for.
    pub zero: Times,
}

/// Puts a load into each queue, at moments that have nothing to do with anybody's own, on both sides at the same moment.
pub async fn burst_round(sides: &[Side; 2], round: usize, into: &mut [Bursts; 2]) {
    let pauses = BURSTS.map(|_| Duration::from_millis(rand::rng().random_range(0..8000)));
    let all = BURSTS.iter().zip(pauses).map(|(queue, pause)| async move {
        sleep(pause).await;
        join_all(sides.iter().map(|side| one_burst(side, queue, round))).await
    });
    for both in join_all(all).await {
        for (into, [asked, first_ready, enough_asked, enough_ready, done, zero]) in into.iter_mut().zip(both) {
            into.asked.add(asked);
            into.first_ready.add(first_ready);
            into.enough_asked.add(enough_asked);
            into.enough_ready.add(enough_ready);
            into.done.add(done);
            into.zero.add(zero);
        }
    }
}

async fn one_burst(side: &Side, queue: &Queue, round: usize) -> [Duration; 6] {
    let mut redis = side.redis(queue).await;
    let jobs: Vec<_> = (0..BURST_JOBS).map(|job| (format!("{}-{round}-{job}", queue.name), BURST_MS)).collect();
    let sent = side.push(queue, &mut redis, &jobs).await;
    let here = &side.namespace.name;
    let until = async |number, least| {
        let at = side.watched.reaches(number, here, queue.name, least, sent, PATIENCE).await;
        at.unwrap_or_else(|| panic!("{} {}: not {least} {number:?}", side.scaler.name(), queue.name)) - sent
    };
    let enough = queue.max_replicas as usize;
    let asked = until(Number::Replicas, 1).await;
    let first_ready = until(Number::Ready, 1).await;
    let enough_asked = until(Number::Replicas, enough).await;
    let enough_ready = until(Number::Ready, enough).await;
    let done = side.done(&mut redis, PATIENCE).await.unwrap_or_else(|| panic!("{}: jobs were not done", queue.name));
    let zero = side.watched.becomes(Number::Replicas, here, queue.name, done, PATIENCE, |number| number == 0).await;
    let zero = zero.unwrap_or_else(|| panic!("{} {}: not scaled to zero", side.scaler.name(), queue.name));
    assert!(side.at_zero(queue, PATIENCE).await, "{}: pods stay", queue.name);
    [asked, first_ready, enough_asked, enough_ready, done - sent, zero - done]
}

/// What a side did with jobs that were still running when nothing waited any more.
#[derive(Debug, Default, Clone, Copy)]
pub struct LongJobs {
    /// Long jobs.
    pub long: usize,
    /// Those that ended in the run that they were begun in.
    pub undisturbed: usize,
    /// Those whose pod was taken away before they had ended.
    pub cut: usize,
    /// Of these: begun again elsewhere.
    pub again: usize,
    /// Of these: still in progress by Redis, though no pod is left.
    pub stranded: usize,
    /// Pods at the moment when only the long jobs were left, and the fewest until these should have ended.
    pub pods: usize,
}

/// Some long jobs, and short ones that are done long before them.
pub async fn mixed_round(sides: &[Side; 2]) -> [LongJobs; 2] {
    let all = sides.iter().map(|side| async move {
        let of_each = join_all(MIXED.iter().map(|queue| one_mixed(side, queue))).await;
        of_each.into_iter().fold(LongJobs::default(), |sum, one| LongJobs {
            long: sum.long + one.long,
            undisturbed: sum.undisturbed + one.undisturbed,
            cut: sum.cut + one.cut,
            again: sum.again + one.again,
            stranded: sum.stranded + one.stranded,
            pods: sum.pods + one.pods,
        })
    });
    let both = join_all(all).await;
    [both[0], both[1]]
}

async fn one_mixed(side: &Side, queue: &Queue) -> LongJobs {
    let mut redis = side.redis(queue).await;
    let long: Vec<_> = (0..LONG_JOBS).map(|job| (format!("{}-long-{job}", queue.name), LONG_MS)).collect();
    let short = (0..SHORT_JOBS).map(|job| (format!("{}-short-{job}", queue.name), SHORT_MS));
    let jobs: Vec<_> = long.iter().cloned().chain(short).collect();
    let sent = side.push(queue, &mut redis, &jobs).await;
    let all: BTreeSet<&String> = long.iter().map(|(id, _)| id).collect();
    // Every long job has begun and nothing waits: pods are what is left to be decided.
    let only_long = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(200));
        loop {
            ticks.tick().await;
            let (waiting, running) = side.jobs(&mut redis).await;
            if waiting == 0 && running.iter().all(|id| all.contains(id)) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, only_long).await.unwrap_or_else(|_| panic!("{}: short jobs stay", queue.name));
    let pods = side.watched.now(Number::Pods, &side.namespace.name, queue.name).map_or(0, |(_, pods)| pods);
    // The later of: the last long job would have ended; all pods are gone.
    let would_end = Duration::from_millis(LONG_MS) + Duration::from_secs(30);
    sleep(would_end.saturating_sub(sent.elapsed())).await;
    assert!(side.at_zero(queue, PATIENCE).await, "{} {}: pods stay", side.scaler.name(), queue.name);
    // The last lines of a pod's log may take a moment.
    sleep(Duration::from_secs(2)).await;
    let (_, running) = side.jobs(&mut redis).await;
    let mut result = LongJobs { pods, ..LongJobs::default() };
    for id in all {
        let (starts, ends) = side.journal.runs(id);
        let undisturbed = starts == 1 && ends == 1;
        result.long += 1;
        result.undisturbed += usize::from(undisturbed);
        result.cut += usize::from(!undisturbed);
        result.again += usize::from(starts > 1);
        result.stranded += usize::from(running.contains(id));
    }
    result
}

/// What a side did with a backlog that a cap lets through two by two.
#[derive(Debug, Default, Clone, Copy)]
pub struct Capped {
    /// Pods at the peak.
    pub peak: usize,
    /// Seconds of pods, until none was left.
    pub pod_seconds: f64,
    /// Until the last job was done.
    pub done: Duration,
}

/// A hundred jobs of which two may run at once.
pub async fn capped_round(sides: &[Side; 2]) -> [Capped; 2] {
    let both = join_all(sides.iter().map(|side| async move {
        let queue = &CAPPED;
        let mut redis = side.redis(queue).await;
        let jobs: Vec<_> = (0..CAPPED_JOBS).map(|job| (format!("capped-{job}"), CAPPED_MS)).collect();
        let began = Instant::now();
        let sent = side.push(queue, &mut redis, &jobs).await;
        let done = side.done(&mut redis, PATIENCE).await.expect("capped jobs were not done");
        assert!(side.at_zero(queue, PATIENCE).await, "{}: capped pods stay", side.scaler.name());
        Capped {
            peak: side.watched.most(Number::Pods, &side.namespace.name, queue.name, began),
            pod_seconds: side.watched.seconds(Number::Pods, &side.namespace.name, queue.name, began),
            done: done - sent,
        }
    }))
    .await;
    [both[0], both[1]]
}
