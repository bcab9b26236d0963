//! The cluster of the end-to-end tier from below: its nodes' processes, its packet filter, and the operator in it,
//! installed once by helm from the chart.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::OnceCell;

use super::kube::{client, cluster_folder, wait_for};

/// The operator's namespace, and the name of its release.
pub const OPERATOR_NAMESPACE: &str = "poolkeeper-system";
const RELEASE: &str = "poolkeeper";
/// Pods of the operator.
pub const OPERATOR_LABEL: &str = "app.kubernetes.io/name=poolkeeper";
/// How many there are.
pub const REPLICAS: usize = 2;

static INSTALLED: OnceCell<()> = OnceCell::const_new();

/// Loads the images and installs the chart, once in a run; then waits until all replicas are ready.
pub async fn operators_ready() -> Vec<Pod> {
    INSTALLED.get_or_init(install).await;
    let pods = operator_pods(&client().await);
    wait_for("replicas of the operator that are ready", Duration::from_secs(60), || async {
        let running: Vec<Pod> = pods.list(&operators()).await.ok()?.into_iter().filter(is_ready).collect();
        (running.len() == REPLICAS).then_some(running)
    })
    .await
}

/// The API of the operator's pods.
pub fn operator_pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), OPERATOR_NAMESPACE)
}

/// All of its pods.
pub fn operators() -> ListParams {
    ListParams::default().labels(OPERATOR_LABEL)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}

async fn install() {
    let images = images();
    let mut sum = 0;
    for name in ["poolkeeper", "gocraft-worker", "redis"] {
        let tar = images.join(format!("{name}.tar"));
        let made = tar.metadata().unwrap_or_else(|error| panic!("{}: {error}; run make images", tar.display()));
        if name == "poolkeeper" {
            sum = made.modified().unwrap().elapsed().map_or(0, |age| now_in_seconds() - age.as_secs());
        }
        succeeded(command(["hack/cluster/load", tar.to_str().unwrap()]));
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OPERATOR_NAMESPACE, "labels": restricted()}});
    Api::<Namespace>::all(client().await)
        .patch(OPERATOR_NAMESPACE, &PatchParams::apply("test"), &Patch::Apply(&namespace))
        .await
        .expect("the operator's namespace");
    // The annotation starts new pods when the image behind an unchanged name is another one.
    let settings = format!(
        "image.repository=localhost/poolkeeper,image.tag=dev,podAnnotations.image-of={sum},logLevel=info\\,poolkeeper=debug"
    );
    let helm = ["hack/cluster/exec", "helm", "upgrade", "--install", RELEASE, "charts/poolkeeper"];
    let flags = ["--namespace", OPERATOR_NAMESPACE, "--wait", "--timeout", "180s", "--set-string", &settings];
    succeeded(command(helm.into_iter().chain(flags)));
}

fn now_in_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

/// Labels of a namespace whose pods must meet the restricted standard.
pub fn restricted() -> serde_json::Value {
    json!({"pod-security.kubernetes.io/enforce": "restricted"})
}

/// Where `hack/images/build` puts images; `bin` in it has the programs themselves.
pub fn images() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder").join("images")
}

/// One of the settings that `hack/cluster/up` wrote down.
pub fn setting(name: &str) -> String {
    let text = std::fs::read_to_string(cluster_folder().join("env")).expect("the cluster's settings");
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("='")?.strip_suffix('\''));
    found.unwrap_or_else(|| panic!("the cluster has no {name}; it needs a node")).to_owned()
}

/// A command in the root of the checkout.
pub fn command<'a>(words: impl IntoIterator<Item = &'a str>) -> Command {
    let mut words = words.into_iter();
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words).current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// The same with root's rights.
pub fn as_root<'a>(words: impl IntoIterator<Item = &'a str>) -> Command {
    let is_root = command(["id", "-u"]).output().is_ok_and(|id| id.stdout == b"0\n");
    command(if is_root { None } else { Some("sudo") }.into_iter().chain(words))
}

/// Runs a command that must succeed, and gives what it printed.
pub fn succeeded(mut command: Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("text")
}

/// The state of a pod's first container: its id (without the runtime's name), if it runs.
pub fn running_container(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    status.state.as_ref()?.running.as_ref()?;
    Some(status.container_id.as_ref()?.rsplit('/').next()?.to_owned())
}

/// The host's process id of a running container's first process.
pub fn process_of(container: &str) -> u32 {
    let socket = setting("NODE_1_CONTAINERD");
    let tasks = succeeded(as_root(["ctr", "--address", &socket, "--namespace", "k8s.io", "tasks", "list"]));
    let line = tasks.lines().find(|line| line.starts_with(container));
    let pid = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    pid.unwrap_or_else(|| panic!("containerd knows no process of {container}"))
}

/// The process of a pod's first container, which must run.
pub fn process_of_pod(pod: &Pod) -> u32 {
    process_of(&running_container(pod).unwrap_or_else(|| panic!("{} does not run", pod.name_any())))
}

/// Sends a signal to one process of the cluster.
pub fn signal(pid: u32, signal: &str) {
    succeeded(as_root(["kill", &format!("-{signal}"), &pid.to_string()]));
}

/// Processes that stand still until this is dropped.
pub struct Frozen(Vec<u32>);

impl Frozen {
    /// Stops them as they stand.
    pub fn new(pids: Vec<u32>) -> Self {
        let frozen = Self(pids);
        for pid in &frozen.0 {
            signal(*pid, "STOP");
        }
        frozen
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = as_root(["kill", "-CONT", &pid.to_string()]).status();
        }
    }
}

/// Packets between two pods that are thrown away until this is dropped.
pub struct Cut(Vec<String>);

impl Cut {
    /// Nothing of `from` reaches `to` any more. Addresses of pods.
    pub fn new(from: &str, to: &str) -> Self {
        let rule = ["FORWARD", "--source", from, "--destination", to, "--jump", "DROP"].map(str::to_owned);
        let cut = Self(rule.to_vec());
        succeeded(cut.iptables("--insert"));
        cut
    }

    fn iptables(&self, what: &str) -> Command {
        let network = format!("--net=/run/netns/{}", setting("NODE_1_NETNS"));
        let rule = self.0.iter().map(String::as_str);
        as_root(["nsenter", &network, "iptables", "--wait", "10", what].into_iter().chain(rule))
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        let _ = self.iptables("--delete").status();
    }
}
