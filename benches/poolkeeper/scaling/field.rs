//! Many queues with `spec.scaling`, each on a Deployment at zero replicas; one in ten has a Redis of its own.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use poolkeeper::api::job_queue::JobQueue;
use rand::Rng as _;
use redis::aio::MultiplexedConnection;
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use crate::figures::Times;
use crate::support::kube::wait_for;
use crate::support::redis::RedisServer;
use crate::watched::{Number, Watched};
use crate::workers::{self, AT_ONCE, Worker};

const QUEUES_IN_A_NAMESPACE: usize = 50;
/// Nobody waits longer than this for a replica.
const PATIENCE: Duration = Duration::from_secs(60);
/// A queue is at rest when it has had no replica for this long.
const REST: Duration = Duration::from_secs(3);
/// Between two jobs of a busy queue.
const A_JOB_EVERY: Duration = Duration::from_secs(10);
/// How long such a job takes.
const A_JOB_TAKES: Duration = Duration::from_millis(500);
/// Their labels.
const LABELS: &str = "bench=scaling";

/// One queue.
pub struct Place {
    namespace: String,
    name: String,
    redis: MultiplexedConnection,
    url: String,
    /// Whether its Redis is its own.
    is_apart: bool,
}

/// All of them.
pub struct Field {
    client: Client,
    /// The Redis that most of them share.
    pub shared: RedisServer,
    /// Those of one queue each.
    pub apart: Vec<RedisServer>,
    namespaces: Vec<String>,
    places: Vec<Place>,
    watched: Watched,
    /// What keeps queues busy.
    business: Vec<AbortOnDropHandle<()>>,
    /// How many of the places, from the first on, are kept busy.
    busy: usize,
}

impl Field {
    /// Makes the Deployments and the queues.
    pub async fn new(client: &Client, queues: usize) -> Self {
        let shared = RedisServer::start().await;
        let redis = shared.connection().await;
        let mut namespaces = Vec::new();
        for _ in 0..queues.div_ceil(QUEUES_IN_A_NAMESPACE) {
            namespaces.push(workers::namespace(client, "scaling").await);
        }
        let (mut apart, mut places) = (Vec::new(), Vec::new());
        for number in 0..queues {
            let is_apart = number % 10 == 9;
            if is_apart {
                apart.push(RedisServer::start().await);
            }
            let (redis, url) = match apart.last() {
                Some(own) if is_apart => (own.connection().await, own.url()),
                _ => (redis.clone(), shared.url()),
            };
            let namespace = namespaces[number / QUEUES_IN_A_NAMESPACE].clone();
            places.push(Place { namespace, name: format!("scaling-{queues}-{number}"), redis, url, is_apart });
        }
        stream::iter(&places).for_each_concurrent(16, |place| place.apply(client)).await;
        let watched = Watched::default().deployments(Api::all(client.clone()), LABELS);
        let (client, business) = (client.clone(), Vec::new());
        Self { client, shared, apart, namespaces, places, watched, business, busy: 0 }
    }

    /// Waits until all are ready.
    pub async fn ready(&self) {
        workers::ready_in(&self.client, &self.namespaces, self.places.len(), Duration::from_secs(600)).await;
    }

    /// Pushes a first job to one queue after the other, each at rest; how long until its Deployment is asked for a replica.
    pub async fn first_jobs(&self, pushes: usize) -> Times {
        let mut times = Times::default();
        for _ in 0..pushes {
            let pause = rand::rng().random_range(50..250);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let place = wait_for("a queue at rest", PATIENCE, || async { self.at_rest() }).await;
            let sent = Instant::now();
            place.push().await;
            times.add(self.asked(place, sent).await - sent);
            // Somebody else ran it.
            place.empty().await;
        }
        times
    }

    /// One of the queues that have no replica, by chance. Those with a Redis of their own and the busy ones don't count.
    fn at_rest(&self) -> Option<&Place> {
        let resting: Vec<&Place> =
            self.places[self.busy..].iter().filter(|place| !place.is_apart && self.rests(place)).collect();
        (!resting.is_empty()).then(|| resting[rand::rng().random_range(0..resting.len())])
    }

    fn rests(&self, place: &Place) -> bool {
        let now = self.watched.now(Number::Replicas, &place.namespace, &place.name);
        now.is_some_and(|(since, replicas)| replicas == 0 && since.elapsed() >= REST)
    }

    /// When a Deployment was asked for its first replica.
    async fn asked(&self, place: &Place, sent: Instant) -> Instant {
        let (namespace, name) = (&place.namespace, &place.name);
        let seen = self.watched.reaches(Number::Replicas, namespace, name, 1, sent, PATIENCE).await;
        let now = || self.watched.now(Number::Replicas, namespace, name).map(|(since, many)| (since.elapsed(), many));
        seen.unwrap_or_else(|| {
            panic!("{namespace}/{name} got no replica within {PATIENCE:?}: since, and how many: {:?}", now())
        })
    }

    /// Keeps all but some busy, by their Redis shared: a job at the same moment for each, a pod that poolkeeper asks for, a
    /// pool in it that beats, a job that never ends, and another one every ten seconds. Gives how many there are, and how
    /// long after the jobs the last of them was asked for a pod.
    pub async fn keep_busy(&mut self, resting: usize) -> (usize, Duration) {
        self.busy = self.places.len() - resting;
        let busy: Vec<&Place> = self.places[..self.busy].iter().filter(|place| !place.is_apart).collect();
        wait_for("all queues at rest", PATIENCE, || async { busy.iter().all(|place| self.rests(place)).then_some(()) })
            .await;
        let sent = Instant::now();
        for place in &busy {
            place.push().await;
        }
        let mut last = sent;
        for place in &busy {
            last = last.max(self.asked(place, sent).await);
        }
        let client = &self.client;
        let started = stream::iter(&busy).map(|place| place.started(client)).buffered(AT_ONCE);
        let workers: Vec<Worker> = started.collect().await;
        let mut redis = self.shared.connection().await;
        workers::pools(&mut redis, &workers, &["mail"], 1).await;
        for place in &busy {
            place.empty().await;
        }
        self.business.push(workers::beating(&redis, busy.iter().map(|place| place.name.clone()).collect()));
        for worker in &workers {
            workers::bound(&redis, &worker.prefix, 1).await;
        }
        let count = workers.len();
        self.business.push(AbortOnDropHandle::new(tokio::spawn(work(redis, workers))));
        (count, last - sent)
    }

    /// Stops the servers of single queues as they stand.
    pub fn freeze(&self) {
        for server in &self.apart {
            server.freeze();
        }
    }

    /// Takes all away again.
    pub async fn clear(self) {
        drop(self.business);
        for server in &self.apart {
            server.thaw();
        }
        for namespace in &self.namespaces {
            let queues = Api::<JobQueue>::namespaced(self.client.clone(), namespace);
            let deployments = Api::<Deployment>::namespaced(self.client.clone(), namespace);
            let (now, all) = (DeleteParams::background().grace_period(0), ListParams::default());
            let _ = queues.delete_collection(&now, &all).await.expect("no JobQueues");
            let _ = deployments.delete_collection(&now, &all).await.expect("no Deployments");
        }
        workers::clear(&self.client, &self.namespaces).await;
    }
}

impl Place {
    async fn apply(&self, client: &Client) {
        let labels = json!({"app": self.name});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": self.name, "labels": {"bench": "scaling"}},
            "spec": {
                "replicas": 0, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {
                    "containers": [{"name": "worker", "image": "none"}], "automountServiceAccountToken": false,
                }},
            },
        });
        // Created, not applied: an applied number would be somebody's, and changing it a quarrel.
        let api = Api::<Deployment>::namespaced(client.clone(), &self.namespace);
        let object = serde_json::from_value(deployment).unwrap();
        api.create(&kube::api::PostParams::default(), &object).await.expect("a Deployment");
        let queue = json!({
            "apiVersion": "poolkeeper.dev/v1alpha1", "kind": "JobQueue", "metadata": {"name": self.name},
            "spec": {
                "gocraftWork": {"namespace": self.name}, "redis": {"url": self.url}, "jobs": [{"name": "mail"}],
                "workers": {"scaleTargetRef": {"kind": "Deployment", "name": self.name}},
                "scaling": {"maxReplicas": 5, "jobsPerReplica": 10, "scaleDownStabilizationSeconds": 0},
            },
        });
        let queues = Api::<JobQueue>::namespaced(client.clone(), &self.namespace);
        queues
            .patch(&self.name, &PatchParams::apply("bench").force(), &Patch::Apply(&queue))
            .await
            .expect("a JobQueue");
    }

    /// Puts a job into its queue, as the library's Enqueuer does.
    async fn push(&self) {
        let mut pipe = redis::pipe();
        pipe.sadd(format!("{}:known_jobs", self.name), "mail").ignore();
        pipe.lpush(format!("{}:jobs:mail", self.name), workers::job("mail", "first")).ignore();
        pipe.query_async::<()>(&mut self.redis.clone()).await.expect("a job");
    }

    async fn empty(&self) {
        let mut delete = redis::cmd("DEL");
        delete.arg(format!("{}:jobs:mail", self.name));
        delete.query_async::<()>(&mut self.redis.clone()).await.expect("an empty queue");
    }

    /// Waits for its pod, and reports that it runs.
    async fn started(&self, client: &Client) -> Worker {
        let pods = Api::<Pod>::namespaced(client.clone(), &self.namespace);
        let labels = ListParams::default().labels(&format!("app={}", self.name));
        let pod = wait_for(&format!("the pod of {}", self.name), Duration::from_secs(300), || async {
            pods.list(&labels).await.ok()?.items.first().map(ResourceExt::name_any)
        })
        .await;
        let queue = workers::Queue { namespace: &self.namespace, name: &self.name, url: &self.url, jobs: json!([]) };
        let worker = Worker { namespace: self.namespace.clone(), pod, prefix: self.name.clone(), pool: queue.pool(0) };
        worker.runs(client).await;
        worker
    }
}

/// Each of the workers takes a job now and then.
async fn work(redis: MultiplexedConnection, workers: Vec<Worker>) {
    let mut ticks = tokio::time::interval(A_JOB_EVERY / workers.len().max(1) as u32);
    for worker in workers.iter().cycle() {
        ticks.tick().await;
        tokio::spawn(one_job(redis.clone(), worker.clone()));
    }
}

/// A job comes, is taken and is done.
async fn one_job(mut redis: MultiplexedConnection, worker: Worker) {
    let base = format!("{}:jobs:mail", worker.prefix);
    let (taken, info, lock) =
        (format!("{base}:{}:inprogress", worker.pool), format!("{base}:lock_info"), format!("{base}:lock"));
    let job = workers::job("mail", "now and then");
    let mut begins = redis::pipe();
    begins.lpush(&base, &job).ignore();
    begins.cmd("RPOPLPUSH").arg(&base).arg(&taken).ignore();
    begins.incr(&lock, 1).ignore();
    begins.hincr(&info, &worker.pool, 1).ignore();
    let mut ends = redis::pipe();
    ends.lrem(&taken, 1, &job).ignore();
    ends.decr(&lock, 1).ignore();
    ends.hincr(&info, &worker.pool, -1).ignore();
    begins.atomic().query_async::<()>(&mut redis).await.expect("a job is taken");
    tokio::time::sleep(A_JOB_TAKES).await;
    ends.atomic().query_async::<()>(&mut redis).await.expect("a job is done");
}
