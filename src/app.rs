//! Wiring, and the order of starting and stopping.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::client::ClientBuilder;
use kube::runtime::events::{Recorder, Reporter};
use kube::{Api, Client, Config};
use rand::Rng as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::limit::ConcurrencyLimitLayer;
use tracing::{error, info, warn};

use crate::cli::RunArgs;
use crate::job_queue;
use crate::job_queue::context::Context;
use crate::job_queue::report::WriteBudget;
use crate::leader::{self, LeaseSettings};
use crate::metrics::Metrics;
use crate::reaper::owner::OwnerCache;
use crate::reaper::pods::PodIndex;
use crate::reaper::pods::watch::watch_pods;
use crate::redis::Connections;
use crate::scaling::rivals::Rivals;
use crate::server;

const CONNECT_BOUND: Duration = Duration::from_secs(5);
/// How long the API server may take over the Lease: one that is black-holed must not leave us leading.
const ELECTION_BOUND: Duration = Duration::from_secs(4);
/// Requests to the API server at once: a thousand queues that start together need no thousand connections. A watch counts
/// until its answer begins.
const REQUESTS_AT_ONCE: usize = 32;
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_LAST: Duration = Duration::from_secs(15);

/// Runs the operator until SIGTERM or SIGINT. Errors are of the start only: an address in use, no kubeconfig.
pub async fn run(args: RunArgs) -> anyhow::Result<()> {
    // The only other provider would be one that a dependency installed first, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = Config::infer().await.context("no way to the API server: run in a cluster, or set KUBECONFIG")?;
    config.connect_timeout = Some(CONNECT_BOUND);
    let default_namespace = config.default_namespace.clone();
    let mut impatient = config.clone();
    impatient.read_timeout = Some(ELECTION_BOUND);
    impatient.write_timeout = Some(ELECTION_BOUND);
    let election = Client::try_from(impatient).context("the kubeconfig can't be used")?;
    let client = ClientBuilder::try_from(config).context("the kubeconfig can't be used")?;
    let client = client.with_layer(&ConcurrencyLimitLayer::new(REQUESTS_AT_ONCE)).build();
    let listener =
        server::bind(args.listen).await.with_context(|| format!("--listen {} can't be used", args.listen))?;

    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    let mut signals = Signals::new().context("no signals")?;
    let metrics = Metrics::new();
    let pods = PodIndex::new();
    let queues_seen = Arc::new(AtomicBool::new(false));
    let ready = readiness(pods.clone(), queues_seen.clone());
    let broken = Arc::new(AtomicBool::new(false));
    let essential = Essential { tasks: &tasks, stop: stop.clone(), broken: broken.clone() };
    let alive = broken.clone();
    let alive: server::Readiness = Arc::new(move || {
        if alive.load(Ordering::Acquire) { Err("a task that must never end has ended".into()) } else { Ok(()) }
    });
    essential.spawn(
        "the server for probes and metrics",
        server::serve(listener, metrics.clone(), alive, ready, stop.clone()),
    );

    let started = start(&args, client, election, default_namespace, metrics, pods, queues_seen, &essential);
    let failed = tokio::select! {
        failed = started => failed.err(),
        () = signals.recv() => None,
    };
    if failed.is_none() {
        signals.recv_unless(&stop).await;
    }
    info!("stopping");
    stop.cancel();
    tasks.close();
    let bound = Duration::from_secs(args.shutdown_seconds);
    if tokio::time::timeout(bound, tasks.wait()).await.is_err() {
        warn!(
            seconds = args.shutdown_seconds,
            "not everything ended in time; what was begun in Redis is whole, since every script is"
        );
    }
    if broken.load(Ordering::Acquire) {
        return Err(anyhow!("a task that must never end has ended, see above; stopped so that it is started anew"));
    }
    failed.map_or(Ok(()), Err)
}

#[expect(clippy::too_many_arguments, reason = "wiring: each is made once, above")]
async fn start(
    args: &RunArgs,
    client: Client,
    election: Client,
    default_namespace: String,
    metrics: Arc<Metrics>,
    pods: Arc<PodIndex>,
    queues_seen: Arc<AtomicBool>,
    essential: &Essential<'_>,
) -> anyhow::Result<()> {
    let stop = essential.stop.clone();
    let cluster = match &args.cluster_name {
        Some(name) => name.clone(),
        None => cluster_uid(&client).await?,
    };
    let identity = args.identity.clone().unwrap_or_else(default_identity);
    info!(
        version = env!("CARGO_PKG_VERSION"),
        cluster,
        identity,
        observe_only = args.observe_only,
        "poolkeeper starts"
    );

    let (lead, leadership) = watch::channel(false);
    let reporter = Reporter { controller: "poolkeeper".into(), instance: Some(identity.clone()) };
    let context = Arc::new(Context {
        client: client.clone(),
        cluster,
        connections: Connections::default(),
        pods: pods.clone(),
        owners: OwnerCache::new(),
        rivals: Rivals::new(),
        metrics: metrics.clone(),
        lead: leadership.clone(),
        in_cluster: std::env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
        observe_only: args.observe_only,
        resync: Duration::from_secs(args.resync_seconds),
        budget: WriteBudget::new(args.status_writes_per_second),
        recorder: Recorder::new(client.clone(), reporter),
    });
    if !args.observe_only {
        let settings = LeaseSettings {
            namespace: args.lease_namespace.clone().unwrap_or(default_namespace),
            name: args.lease_name.clone(),
            identity,
        };
        essential.spawn("the election", leader::elect(election, settings, lead, stop.clone()));
        essential.tasks.spawn(show_leadership(leadership, metrics, stop.clone()));
    }
    let (rivals, rivals_client) = (context.rivals.clone(), client.clone());
    let (watched, rivals_stop) = (args.watch_namespace.clone(), stop.clone());
    essential.spawn("the watch over autoscalers", async move {
        tokio::select! { () = rivals.watch(rivals_client, watched) => {}, () = rivals_stop.cancelled() => {} }
    });
    let watched = args.watch_namespace.clone();
    let pod_stop = stop.clone();
    essential.spawn("the watch over pods", async move {
        tokio::select! { () = watch_pods(client, watched, pods) => {}, () = pod_stop.cancelled() => {} }
    });
    let queues = job_queue::watch::run(context, args.watch_namespace.clone(), queues_seen, stop);
    essential.spawn("the watch over JobQueues", queues);
    Ok(())
}

/// Tasks that must not end before the process does.
struct Essential<'a> {
    tasks: &'a TaskTracker,
    stop: CancellationToken,
    broken: Arc<AtomicBool>,
}

impl Essential<'_> {
    /// Runs a task. If it ends by itself, or panics, the process stops, to be started anew: half an operator is worse.
    fn spawn<T>(&self, what: &'static str, task: impl Future<Output = T> + Send + 'static) {
        let (stop, broken) = (self.stop.clone(), self.broken.clone());
        self.tasks.spawn(async move {
            let ended = AssertUnwindSafe(task).catch_unwind().await;
            if ended.is_err() || !stop.is_cancelled() {
                error!(panicked = ended.is_err(), "{what} ended");
                broken.store(true, Ordering::Release);
                stop.cancel();
            }
        });
    }
}

async fn show_leadership(mut leadership: watch::Receiver<bool>, metrics: Arc<Metrics>, stop: CancellationToken) {
    loop {
        metrics.leader.set(i64::from(*leadership.borrow_and_update()));
        tokio::select! {
            changed = leadership.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}

fn readiness(pods: Arc<PodIndex>, queues_seen: Arc<AtomicBool>) -> server::Readiness {
    Arc::new(move || {
        if !queues_seen.load(Ordering::Acquire) {
            return Err("JobQueues are not known yet: is the definition jobqueues.poolkeeper.dev installed, and may poolkeeper list it?".into());
        }
        if !pods.synced() {
            return Err("pods are not known yet: may poolkeeper list and watch them?".into());
        }
        Ok(())
    })
}

/// The uid of the namespace kube-system, which no two clusters share. Waits for an API server that is away.
async fn cluster_uid(client: &Client) -> anyhow::Result<String> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let mut wait = RETRY_FIRST;
    loop {
        match tokio::time::timeout(CONNECT_BOUND, namespaces.get("kube-system")).await {
            Ok(Ok(namespace)) => {
                return namespace
                    .metadata
                    .uid
                    .ok_or_else(|| anyhow!("the namespace kube-system has no uid; set --cluster-name"));
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 403 || status.code == 404 => {
                return Err(anyhow!(
                    "the namespace kube-system can't be read ({}); allow it, or set --cluster-name",
                    status.message
                ));
            }
            Ok(Err(error)) => warn!(%error, "the API server does not answer; trying again"),
            Err(_) => warn!("the API server does not answer in time; trying again"),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY_LAST);
    }
}

fn default_identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}-{:08x}", host.trim(), rand::rng().random::<u32>())
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    received: bool,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            received: false,
        })
    }

    async fn recv(&mut self) {
        tokio::select! { _ = self.terminate.recv() => {}, _ = self.interrupt.recv() => {} }
        self.received = true;
    }

    async fn recv_unless(&mut self, stop: &CancellationToken) {
        if !self.received {
            tokio::select! { () = self.recv() => {}, () = stop.cancelled() => {} }
        }
    }
}
