//! A made-up cluster: pods that take a while to start, workers that take jobs, and jobs that end.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::stage::{Stage, pod};
use crate::scaling::{PodFacts, PodPhase, PodUid, Rules, Step, TargetKind};

/// How a cluster behaves.
#[derive(Debug, Clone)]
struct Ways {
    kind: TargetKind,
    /// Seconds until a pod is Ready.
    start_up: u64,
    /// Seconds until a mark is seen.
    marks_seen: u64,
    concurrency: u64,
    rules: Rules,
}

struct Worker {
    number: usize,
    ready_at: u64,
    /// When its jobs end.
    jobs: Vec<u64>,
    cost: Option<i32>,
}

struct Cluster {
    ways: Ways,
    stage: Stage,
    second: u64,
    workers: Vec<Worker>,
    started: usize,
    /// How long each waiting job will take.
    waiting: Vec<u64>,
    marks: Vec<(u64, BTreeMap<PodUid, Option<i32>>)>,
    most: i32,
}

impl Cluster {
    fn new(ways: Ways) -> Self {
        let mut stage = Stage::new(0);
        stage.kind = ways.kind;
        stage.concurrency = u32::try_from(ways.concurrency).unwrap();
        stage.rules = ways.rules.clone();
        Self { ways, stage, second: 0, workers: vec![], started: 0, waiting: vec![], marks: vec![], most: 0 }
    }

    fn enqueue(&mut self, jobs: impl IntoIterator<Item = u64>) {
        self.waiting.extend(jobs);
    }

    fn running(&self) -> usize {
        self.workers.iter().map(|worker| worker.jobs.len()).sum()
    }

    /// One second: jobs end, jobs are taken, it is decided, and that is carried out.
    fn tick(&mut self) -> Result<(), TestCaseError> {
        let second = self.second;
        for worker in &mut self.workers {
            worker.jobs.retain(|ends| *ends > second);
        }
        let (ready, slots) = (self.workers.iter().filter(|one| one.ready_at <= second).count(), self.ways.concurrency);
        for turn in 0..ready * usize::try_from(slots).unwrap() {
            // The next one takes a job, another one first each second.
            let index = (turn + usize::try_from(second).unwrap() * 3) % ready;
            let worker = self.workers.iter_mut().filter(|one| one.ready_at <= second).nth(index).unwrap();
            if (worker.jobs.len() as u64) < slots
                && let Some(takes) = self.waiting.pop()
            {
                worker.jobs.push(second + takes);
            }
        }
        self.show();
        let decision = self.stage.look();
        match decision.step {
            Step::Hold => {}
            Step::MarkBusy { costs } => {
                for worker in &mut self.workers {
                    if let Some(cost) = costs.get(&uid(worker.number)) {
                        worker.cost = *cost;
                    }
                }
                self.marks.push((second + self.ways.marks_seen, costs));
            }
            Step::Scale(to) => self.scale(to)?,
        }
        self.most = self.most.max(self.stage.current);
        self.second += 1;
        self.stage.wait(1);
        Ok(())
    }

    /// What is seen of it.
    fn show(&mut self) {
        let costs: BTreeMap<PodUid, Option<i32>> =
            self.stage.pods.iter().map(|pod| (PodUid(pod.uid.clone()), pod.deletion_cost)).collect();
        let seen = |worker: &Worker| PodFacts {
            running: worker.jobs.len() as u64,
            phase: if worker.ready_at <= self.second { PodPhase::Ready } else { PodPhase::Pending },
            deletion_cost: costs.get(&uid(worker.number)).copied().flatten(),
            ..pod(&format!("mail-{}", worker.number))
        };
        self.stage.pods = self.workers.iter().map(seen).collect();
        let second = self.second;
        let (now, later) = std::mem::take(&mut self.marks).into_iter().partition(|(at, _)| *at <= second);
        self.marks = later;
        let now: Vec<(u64, BTreeMap<PodUid, Option<i32>>)> = now;
        for (_, costs) in now {
            self.stage.mark(&costs);
        }
        let (waiting, running) = (self.waiting.len() as u64, self.running() as u64);
        let mail = self.stage.mail();
        (mail.waiting, mail.running, mail.locks) = (waiting, running, running);
    }

    fn scale(&mut self, to: i32) -> Result<(), TestCaseError> {
        let wanted = usize::try_from(to).unwrap();
        if to > self.stage.current {
            self.stage.history.scaled_up(self.stage.now, to.abs_diff(self.stage.current));
        }
        self.stage.current = to;
        while self.workers.len() < wanted {
            let number = if self.ways.kind == TargetKind::Replicas { self.started } else { self.workers.len() };
            let ready_at = self.second + self.ways.start_up;
            self.workers.push(Worker { number, ready_at, jobs: vec![], cost: None });
            self.started += 1;
        }
        match self.ways.kind {
            TargetKind::Replicas => {
                let second = self.second;
                self.workers.sort_by_key(|one| (one.ready_at > second, -i64::from(one.cost.unwrap_or(0))));
            }
            TargetKind::Ordinal { .. } => self.workers.sort_by_key(|one| one.number),
            TargetKind::Other => self.workers.reverse(),
        }
        for gone in self.workers.drain(wanted..) {
            prop_assert!(gone.jobs.is_empty(), "a busy pod went at {}", self.second);
        }
        Ok(())
    }
}

fn uid(number: usize) -> PodUid {
    PodUid(format!("uid-mail-{number}").into())
}

fn ways() -> impl Strategy<Value = Ways> {
    let kind = prop_oneof![Just(TargetKind::Replicas), Just(TargetKind::Ordinal { first: 0 }), Just(TargetKind::Other)];
    let rules =
        (1..15_i32, prop::option::of(1..20_u32), prop::option::of(1..30_u64), 0..90_u64, prop::option::of(1..8_u32));
    let rules = rules.prop_map(|(max, jobs_per_replica, max_wait, stabilization, max_up_per_minute)| Rules {
        min: 0,
        max,
        jobs_per_replica,
        max_wait: max_wait.map(Duration::from_secs),
        stabilization: Duration::from_secs(stabilization),
        max_up_per_minute,
        protect_busy: true,
    });
    (kind, 0..20_u64, 0..4_u64, 1..8_u64, rules).prop_map(|(kind, start_up, marks_seen, concurrency, rules)| Ways {
        kind,
        start_up,
        marks_seen,
        concurrency,
        rules,
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300, rng_seed: RngSeed::Fixed(27), failure_persistence: None, ..ProptestConfig::default()
    })]

    /// From 0 up and to 0 again in bounded time, whatever comes when, and no busy pod ever goes.
    #[test]
    fn every_job_is_done_and_all_pods_are_gone_in_the_end(
        ways in ways(),
        bursts in prop::collection::vec((0..200_u64, prop::collection::vec(1..25_u64, 0..40)), 1..5),
    ) {
        let mut cluster = Cluster::new(ways.clone());
        let work: u64 = bursts.iter().flat_map(|(_, jobs)| jobs).sum();
        let last = bursts.iter().map(|(at, _)| *at).max().unwrap_or(0);
        // One worker alone would do it in that time, woken once a minute where each job finds it gone.
        let bound = last + work + 60 + ways.start_up + ways.rules.stabilization.as_secs() + 40 * (ways.marks_seen + 1);
        let mut idle_since = None;
        while cluster.second <= bound {
            let second = cluster.second;
            bursts.iter().filter(|(at, _)| *at == second).for_each(|(_, jobs)| cluster.enqueue(jobs.iter().copied()));
            cluster.tick()?;
            if cluster.waiting.is_empty() && cluster.running() == 0 && second >= last {
                idle_since.get_or_insert(second);
            }
        }
        prop_assert!(cluster.most <= ways.rules.max);
        prop_assert!(idle_since.is_some(), "{} wait, {} run", cluster.waiting.len(), cluster.running());
        prop_assert_eq!(cluster.stage.current, 0);
    }
}

/// Replicas over time, in an even flow: up to what the jobs ask for, and down when they are done.
fn run(mut cluster: Cluster, seconds: u64) -> Vec<(u64, i32)> {
    let mut found = vec![(0, 0)];
    for _ in 0..seconds {
        let second = cluster.second;
        cluster.tick().unwrap();
        if found.last().is_none_or(|(_, replicas)| *replicas != cluster.stage.current) {
            found.push((second, cluster.stage.current));
        }
    }
    found
}

#[test]
fn from_0_to_n_to_0_in_the_time_that_the_rules_say() {
    let rules = Rules { stabilization: Duration::from_secs(60), ..super::stage::rules() };
    let ways = Ways { kind: TargetKind::Replicas, start_up: 8, marks_seen: 1, concurrency: 10, rules };
    let mut cluster = Cluster::new(ways.clone());
    cluster.enqueue([100; 95]);
    assert_eq!(run(cluster, 300), [(0, 0), (0, 10), (168, 0)]);
    let mut cluster =
        Cluster::new(Ways { rules: Rules { max_up_per_minute: Some(4), ..ways.rules.clone() }, ..ways.clone() });
    cluster.enqueue([400; 95]);
    assert_eq!(run(cluster, 200), [(0, 0), (0, 4), (60, 8), (120, 10)]);
    // 90 short jobs and 5 long ones, each of those in a pod of its own: the others go.
    let mut cluster = Cluster::new(ways);
    cluster.enqueue([30; 85].into_iter().chain([400; 10]));
    let found = run(cluster, 600);
    assert_eq!(found[..2], [(0, 0), (0, 10)]);
    assert_eq!(found.last().unwrap().1, 0);
}
