//! `make bench`: what poolkeeper promises of speed, measured, as Markdown tables.
//!
//! Everything is real but the kubelets: a control plane (its folder in `POOLKEEPER_CLUSTER`), Redis servers, the operator
//! of `make build` as a process (`BENCH_OPERATOR`), gocraft/work programs (`BENCH_WORKER`). `hack/bench` starts and ends
//! what is needed, and passes on which stages are wanted; none means all.

mod audit;
mod caps;
mod deaths;
mod figures;
mod identity;
mod keda;
mod library;
mod machine;
mod operator;
mod scale;
mod scaling;
mod settling;
mod watched;
mod workers;

/// The harness of the integration tests.
#[allow(dead_code, reason = "tests use the rest")]
#[path = "../../tests/it/support"]
mod support {
    pub mod cluster;
    pub mod kube;
    pub mod pods;
    pub mod redis;
    pub mod workers;
}

use std::time::Instant;

use tokio::task::spawn_local;
use tokio_util::task::AbortOnDropHandle;

const MASS_ROUNDS: usize = 3;
const SETTLING_ROUNDS: usize = 5;
const LIBRARY_ROUNDS: usize = 10;
const STAGES: [&str; 7] = ["deaths", "mass", "settling", "caps", "scale", "scaling", "library"];
/// Needs another cluster than the others, so it runs by itself.
const BESIDE_KEDA: &str = "keda";

#[tokio::main]
async fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let beside_keda = wanted == [BESIDE_KEDA];
    if let Some(unknown) = wanted.iter().find(|stage| !beside_keda && !STAGES.contains(&stage.as_str())) {
        eprintln!(
            "bench: there is no stage {unknown:?} here; the stages are {}, or {BESIDE_KEDA} alone",
            STAGES.join(", ")
        );
        std::process::exit(2);
    }
    let wants = |stage: &str| wanted.is_empty() || wanted.iter().any(|one| one == stage);
    let quick = std::env::var_os("QUICK").is_some_and(|quick| !quick.is_empty() && quick != "0");

    if beside_keda {
        return with_keda(quick).await;
    }
    let measuring = measure(&wants, wants("library") && !quick, quick);
    tokio::task::LocalSet::new().run_until(measuring).await;
}

/// Runs the stage that has a cluster of its own.
async fn with_keda(quick: bool) {
    let client = support::kube::client().await;
    if std::env::var_os("BENCH_CONTINUES").is_none() {
        println!("{}", machine::described());
    }
    let before = machine::load();
    let tables = keda::all(&client, quick).await;
    println!("{tables}Load of the machine (1 minute): {before} before, {} after.\n", machine::load());
}

/// Runs the stages that are wanted. `patient`: the library's own reaper is waited for. `quick`: fewer rounds of scaling.
async fn measure(wants: &impl Fn(&str) -> bool, patient: bool, quick: bool) {
    let client = support::kube::client().await;
    support::kube::install_definitions(&client).await;
    workers::define_groups(&client).await;
    let lease = workers::namespace(&client, "lease").await;

    // The library takes its time, and next to nothing of the machine's.
    let survivor = patient.then(|| AbortOnDropHandle::new(spawn_local(library::with_a_survivor())));
    let began = Instant::now();
    println!("{}", machine::described());
    for stage in STAGES.into_iter().filter(|stage| wants(stage)) {
        say(began, &format!("{stage} …"));
        let before = machine::load();
        let tables = match stage {
            "deaths" => deaths::single(&client, &lease).await,
            "mass" => deaths::mass(&client, &lease, MASS_ROUNDS).await,
            "settling" => settling::all(SETTLING_ROUNDS).await,
            "caps" => caps::all(&client, &lease).await,
            "scale" => scale::all(&client, &lease).await,
            "scaling" => scaling::all(&client, &lease, quick).await,
            _ => break,
        };
        println!("{tables}Load of the machine (1 minute): {before} before, {} after.\n", machine::load());
    }
    if wants("library") {
        say(began, "library …");
        let replacement = AbortOnDropHandle::new(spawn_local(library::with_a_replacement()));
        let with_poolkeeper = library::with_poolkeeper(&client, &lease, LIBRARY_ROUNDS).await;
        let replacement = replacement.await.expect("the library with a replacement");
        let survivor = match survivor {
            Some(survivor) => {
                say(began, "waiting for the library's own reaper …");
                Some(survivor.await.expect("the library with a survivor"))
            }
            None => None,
        };
        println!("{}", library::table(&with_poolkeeper, &replacement, survivor.as_deref()));
    }
    say(began, "done");
}

fn say(began: Instant, what: &str) {
    eprintln!("{:>5} s  {what}", began.elapsed().as_secs());
}
