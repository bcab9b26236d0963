//! The command line: what can be asked for, and what is wrong with it, before anything starts.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::api::crd;
use crate::app;
use crate::telemetry::{self, LogFormat};

/// Keeps Redis worker pools on Kubernetes: holds their caps, frees what dead workers held, repairs lock counts.
#[derive(Debug, Parser)]
#[command(name = "poolkeeper", version, about, disable_version_flag = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the operator, in a cluster or, with KUBECONFIG, from outside of it
    Run(Box<RunArgs>),
    /// Print the custom resource definitions, or write each to a file of its own
    Crds {
        /// Folder to write them to
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
    },
    /// Print the version
    Version,
}

/// Settings of `poolkeeper run`. Every flag has an environment twin.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Look after this namespace alone; without it, after all
    #[arg(long, env = "POOLKEEPER_WATCH_NAMESPACE", value_parser = dns_label, value_name = "NAMESPACE")]
    pub watch_namespace: Option<String>,

    /// This cluster's name in Redis, where several clusters use one; by default the uid of the namespace kube-system
    #[arg(long, env = "POOLKEEPER_CLUSTER_NAME", value_parser = cluster_name, value_name = "NAME")]
    pub cluster_name: Option<String>,

    /// Namespace of the Lease by which replicas agree who writes to the API server; by default the operator's own
    #[arg(long, env = "POOLKEEPER_LEASE_NAMESPACE", value_parser = dns_label, value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,

    /// Name of that Lease
    #[arg(long, env = "POOLKEEPER_LEASE_NAME", default_value = "poolkeeper", value_parser = dns_name, value_name = "NAME")]
    pub lease_name: String,

    /// This replica's name in the Lease; by default the host's name and a random part
    #[arg(long, env = "POOLKEEPER_IDENTITY", value_parser = not_empty, value_name = "NAME")]
    pub identity: Option<String>,

    /// Address for /healthz, /readyz and /metrics
    #[arg(long, env = "POOLKEEPER_LISTEN", default_value = "0.0.0.0:8080", value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,

    /// How a log line looks
    #[arg(long, env = "POOLKEEPER_LOG_FORMAT", value_enum, default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,

    /// What is logged, such as `info`, `debug`, or `info,poolkeeper::reaper=debug`
    #[arg(long, env = "POOLKEEPER_LOG_FILTER", default_value = "info", value_parser = log_filter, value_name = "FILTER")]
    pub log_filter: String,

    /// Decide and report in logs and metrics, but change nothing, neither in Redis nor in the API server
    #[arg(long, env = "POOLKEEPER_OBSERVE_ONLY", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub observe_only: bool,

    /// How often caps are looked at although nothing told of a change, in seconds
    #[arg(long, env = "POOLKEEPER_RESYNC_SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=300), value_name = "SECONDS")]
    pub resync_seconds: u64,

    /// How many status updates a second may go to the API server, over all resources
    #[arg(long, env = "POOLKEEPER_STATUS_WRITES_PER_SECOND", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    pub status_writes_per_second: u32,

    /// How long a stop may take, in seconds; keep it below the pod's grace period
    #[arg(long, env = "POOLKEEPER_SHUTDOWN_SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=300), value_name = "SECONDS")]
    pub shutdown_seconds: u64,
}

/// Parses the arguments and does what they ask for.
#[must_use]
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(args) => run(&args),
        Command::Crds { out } => match print_crds(out.as_deref()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&format!("the definitions can't be written: {error:#}")),
        },
        Command::Version => {
            println!("poolkeeper {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
    }
}

fn run(args: &RunArgs) -> ExitCode {
    let filter = match telemetry::parse_filter(&args.log_filter) {
        Ok(filter) => filter,
        Err(error) => return fail(&format!("--log-filter {:?}: {error}", args.log_filter)),
    };
    telemetry::start(args.log_format, filter);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("no threads to run on: {error}")),
    };
    let ended = runtime.block_on(app::run(args.clone()));
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn print_crds(out: Option<&Path>) -> anyhow::Result<()> {
    use anyhow::Context as _;
    for (file, definition) in crd::definitions() {
        let yaml = crd::yaml(&definition)?;
        match out {
            None => print!("---\n{yaml}"),
            Some(folder) => {
                let path = folder.join(file);
                std::fs::write(&path, yaml).with_context(|| path.display().to_string())?;
            }
        }
    }
    Ok(())
}

fn fail(message: &str) -> ExitCode {
    eprintln!("poolkeeper: {message}");
    ExitCode::from(2)
}

fn dns_label(text: &str) -> Result<String, String> {
    let good = (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-');
    if good {
        Ok(text.into())
    } else {
        Err("not a namespace: up to 63 lower-case letters, digits and inner hyphens".into())
    }
}

fn dns_name(text: &str) -> Result<String, String> {
    if text.len() <= 253 && text.split('.').all(|label| dns_label(label).is_ok()) {
        Ok(text.into())
    } else {
        Err("not a name: labels of lower-case letters, digits and inner hyphens, joined by dots".into())
    }
}

fn cluster_name(text: &str) -> Result<String, String> {
    let good = (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if good { Ok(text.into()) } else { Err("use up to 63 letters, digits, hyphens, underscores and dots".into()) }
}

fn not_empty(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("it is empty".into()) } else { Ok(text.into()) }
}

fn log_filter(text: &str) -> Result<String, String> {
    text.parse::<EnvFilter>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_setting_has_an_environment_twin_of_its_own_name() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        for argument in run.get_arguments().filter(|a| a.get_id() != "help") {
            let long = argument.get_long().unwrap();
            let twin = format!("POOLKEEPER_{}", long.replace('-', "_").to_uppercase());
            assert_eq!(argument.get_env().and_then(|e| e.to_str()), Some(twin.as_str()), "--{long}");
            assert!(argument.get_help().is_some(), "--{long} has no help");
        }
    }

    #[test]
    fn bad_settings_are_refused_at_start() {
        for bad in [
            ["--watch-namespace", "Not_A_Namespace"],
            ["--cluster-name", "a/b"],
            ["--lease-name", "-x"],
            ["--identity", " "],
            ["--listen", "nowhere"],
            ["--log-format", "xml"],
            ["--log-filter", "a=b=c"],
            ["--resync-seconds", "0"],
            ["--status-writes-per-second", "0"],
            ["--shutdown-seconds", "1000"],
        ] {
            let parsed = Cli::try_parse_from(["poolkeeper", "run", bad[0], bad[1]]);
            assert!(parsed.is_err(), "{bad:?} was taken");
        }
    }
}
