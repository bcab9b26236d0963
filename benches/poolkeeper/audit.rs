//! Who asked the API server for what, by its audit log: every request is in it, but for the health checks and the
//! kubelets' Leases.

use std::io::{BufRead as _, BufReader};

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

use crate::support::kube::cluster_folder;

/// The fields that count.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    request_received_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

/// Requests of one user.
#[derive(Debug, Clone, Copy, Default)]
pub struct Requests {
    /// All of them; one watch is one.
    pub all: usize,
    /// Those that change something.
    pub writes: usize,
}

/// How many requests came from a user between two moments. `agent` is a part of the user agent, for programs that share a
/// user.
pub fn requests(user: &str, agent: &str, from: Timestamp, to: Timestamp) -> Requests {
    let folder = cluster_folder().join("logs");
    let files = std::fs::read_dir(&folder).expect("the cluster's logs").flatten();
    let logs = files.filter(|file| file.file_name().to_string_lossy().starts_with("audit"));
    let name = format!("\"username\":\"{user}\"");
    let mut found = Requests::default();
    for log in logs {
        let log = std::fs::File::open(log.path()).expect("an audit log");
        // The last line may be half written.
        for line in BufReader::new(log).lines().map_while(Result::ok).filter(|line| line.contains(&name)) {
            let Ok(line) = serde_json::from_str::<Line>(&line) else { continue };
            let is_meant = line.user.username == user && line.user_agent.contains(agent);
            // A watch answers for minutes: its end does not count.
            let stage = if line.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" };
            if is_meant && line.stage == stage && (from..to).contains(&line.request_received_timestamp) {
                found.all += 1;
                found.writes += usize::from(!["get", "list", "watch"].contains(&line.verb.as_str()));
            }
        }
    }
    found
}
