//! A queue's pods, its Redis and a judge, in simulated time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::protocol::{
    Claim, ConnectionId, EpochSeconds, Heartbeat, JobTypeName, JobTypeSeen, Observation, PoolId, PoolSeen,
};
use crate::reaper::container::{ContainerStatus, End, Report};
use crate::reaper::host::HostKey;
use crate::reaper::judge::{Identity, Judge, Judgement};
use crate::reaper::owner::QueuePods;
use crate::reaper::pods::index::PodEvent;
use crate::reaper::pods::{Labels, PodIndex, WorkerPod};
use crate::reaper::verdict::{Proof, Settings};

/// Where the nodes' clock stands at second 0 of the stage. Ours and Redis's stand elsewhere on purpose.
pub const NODE_CLOCK: i64 = 5_000;
const REDIS_CLOCK: i64 = 900_000;

pub struct Stage {
    pub index: Arc<PodIndex>,
    pub judge: Judge,
    pub redis: Observation,
    pub keep_bindings: bool,
    pub containers: Vec<String>,
    start: Instant,
    now: f64,
}

pub fn pool(name: &str) -> PoolId {
    PoolId::from(name)
}

pub fn node_time(second: i64) -> EpochSeconds {
    EpochSeconds(NODE_CLOCK + second)
}

/// A running pod with one container `worker`, whose id is `<name>/0`, started at `second`.
pub fn running(name: &str, second: i64) -> WorkerPod {
    let status = ContainerStatus {
        current: Some(Report { id: format!("{name}/0").into(), started_at: Some(node_time(second)), end: None }),
        ..ContainerStatus::waiting("worker".into())
    };
    WorkerPod {
        uid: format!("uid-{name}").into(),
        namespace: "payments".into(),
        name: name.into(),
        hosts: [HostKey::of(name)].into(),
        phase: "Running".into(),
        reason: None,
        deleting: false,
        ready: true,
        deletion_cost: None,
        labels: Arc::new(Labels::new()),
        owner: None,
        containers: [status].into(),
    }
}

pub fn end(second: Option<i64>) -> End {
    End { finished_at: second.map(node_time), reason: "OOMKilled".into(), exit_code: Some(137) }
}

/// The pod after its container ended at `second` of its node's clock.
pub fn ended(mut pod: WorkerPod, second: i64) -> WorkerPod {
    let current = pod.containers[0].current.as_mut().unwrap();
    current.end = Some(end(Some(second)));
    pod
}

/// The pod after its container ended at `finished` and another one was started at `started`. Without `finished` the
/// kubelet has forgotten the one that ended.
pub fn restarted(mut pod: WorkerPod, finished: Option<i64>, started: i64) -> WorkerPod {
    let status = &mut pod.containers[0];
    let mut last = status.current.take().unwrap();
    last.end = Some(end(finished));
    status.last = finished.map(|_| last);
    status.restart_count += 1;
    let id = format!("{}/{}", pod.name, status.restart_count);
    status.current = Some(Report { id: id.into(), started_at: Some(node_time(started)), end: None });
    pod
}

impl Stage {
    pub fn new() -> Self {
        let identity = Identity { cluster: "here".into(), namespace: "payments".into(), name: "mail".into() };
        let stage = Self {
            index: PodIndex::new(),
            judge: Judge::new(identity, Settings::default()),
            redis: Observation {
                redis_time: EpochSeconds(REDIS_CLOCK),
                connection: ConnectionId(1),
                pools: BTreeMap::new(),
                job_types: BTreeMap::new(),
                bindings: BTreeMap::new(),
                reaped: BTreeMap::new(),
                claims: Vec::new(),
                totals: BTreeMap::new(),
                ..Observation::default()
            },
            keep_bindings: true,
            containers: Vec::new(),
            start: Instant::now() + Duration::from_secs(100_000),
            now: 0.0,
        };
        stage.pods(PodEvent::ListBegins);
        stage.pods(PodEvent::ListEnds);
        stage
    }

    /// A new operator: it knows what Redis and the API server have, and nothing else.
    pub fn restart_operator(&mut self, pods: Vec<WorkerPod>) {
        self.judge_for("mail", pods);
    }

    /// A new operator judges for the queue `name` of the same namespace, which has these pods and no others.
    pub fn judge_for(&mut self, name: &str, pods: Vec<WorkerPod>) {
        let identity = Identity { cluster: "here".into(), namespace: "payments".into(), name: name.into() };
        self.judge = Judge::new(identity, Settings::default());
        self.index = PodIndex::new();
        self.list(pods);
    }

    pub fn list(&self, pods: Vec<WorkerPod>) {
        self.pods(PodEvent::ListBegins);
        for pod in pods {
            self.pods(PodEvent::Listed(pod));
        }
        self.pods(PodEvent::ListEnds);
    }

    pub fn set_settings(&mut self, change: impl FnOnce(&mut Settings)) {
        let mut settings = Settings::default();
        change(&mut settings);
        self.judge.set_settings(settings);
    }

    pub fn instant(&self) -> Instant {
        self.start + Duration::from_secs_f64(self.now)
    }

    pub fn at(&mut self, second: f64) -> &mut Self {
        assert!(second >= self.now, "time goes on");
        self.now = second;
        self.redis.redis_time = EpochSeconds(REDIS_CLOCK + second as i64);
        self
    }

    pub fn now(&self) -> f64 {
        self.now
    }

    pub fn pods(&self, event: PodEvent) {
        self.index.apply(event, self.instant());
    }

    pub fn apply(&self, pod: WorkerPod) {
        self.pods(PodEvent::Applied(pod));
    }

    /// A beat of the pool, which started at `started`, in a process of host `host`.
    pub fn beat(&mut self, name: &str, host: &str, started: i64) {
        self.beat_as(name, host, started, "1");
    }

    pub fn beat_as(&mut self, name: &str, host: &str, started: i64, pid: &str) {
        let heartbeat = Heartbeat {
            heartbeat_at: EpochSeconds(NODE_CLOCK + self.now as i64),
            started_at: EpochSeconds(NODE_CLOCK + started),
            job_names: vec![JobTypeName::from("send")],
            concurrency: 4,
            host: host.into(),
            pid: pid.into(),
        };
        self.redis.pools.insert(pool(name), PoolSeen { heartbeat: Some(Box::new(heartbeat)), listed: true });
    }

    pub fn jobs(&mut self, name: &str, count: u64) {
        let seen: &mut JobTypeSeen = self.redis.job_types.entry(JobTypeName::from("send")).or_default();
        seen.in_progress.insert(pool(name), count);
    }

    pub fn claim(&mut self, cluster: &str, name: &str, hosts: &[&str]) {
        let there = EpochSeconds(self.redis.redis_time.0 - 10);
        self.redis.claims.push(Claim {
            cluster: cluster.into(),
            namespace: "payments".into(),
            name: name.into(),
            uid: format!("uid-{name}"),
            created_at: EpochSeconds(1),
            job_types: BTreeSet::new(),
            concurrency: 4,
            hosts: hosts.iter().map(|host| ((*host).to_string(), there)).collect(),
            written_at: there,
        });
    }

    pub fn queue_pods(&self) -> QueuePods {
        let records = self.index.changes("payments", 0).pods.into_values().flatten();
        QueuePods::of(records, &self.containers)
    }

    pub fn look(&mut self) -> Judgement {
        let judgement = self.judge.look(self.instant(), Arc::new(self.redis.clone()), &self.queue_pods());
        if self.keep_bindings {
            self.redis.bindings.extend(judgement.new_bindings.clone());
        }
        judgement
    }

    pub fn react(&mut self) -> Judgement {
        self.judge.react(self.instant(), &self.queue_pods()).expect("there was a look")
    }

    /// Looks as often as the judge wants, and twice a second calls `life`, up to the second `until`. The answer is when
    /// each pool was first found dead, and by which proof.
    pub fn run(&mut self, until: f64, mut life: impl FnMut(&mut Self)) -> BTreeMap<PoolId, (f64, Proof)> {
        let mut found = BTreeMap::new();
        let mut next = self.now;
        while self.now < until {
            life(self);
            if self.now >= next {
                let judgement = self.look();
                for (pool, proof) in judgement.dead {
                    found.entry(pool).or_insert((self.now, proof));
                }
                next = self.now + judgement.next_look.as_secs_f64();
            }
            self.at(self.now + 0.5);
        }
        found
    }

    /// A pool bound to a running pod of its name, beating at seconds 0 and 5.
    pub fn bound(&mut self, name: &str) -> WorkerPod {
        let pod = running(name, -60);
        self.apply(pod.clone());
        self.beat(name, name, -59);
        self.look();
        self.at(self.now + 2.5).look();
        self.at(self.now + 2.5).beat(name, name, -59);
        let judgement = self.look();
        assert_eq!(judgement.pods_of[&pool(name)], [Arc::from(name)].into());
        assert_eq!(self.redis.bindings[&pool(name)].candidates.len(), 1);
        pod
    }
}

/// Beats every five seconds from second 0 on.
pub fn every_five(stage: &Stage) -> bool {
    (stage.now() % 5.0).abs() < 0.01
}
