//! The operator as a process of its own, from outside of the cluster.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::kube::{kubeconfig, wait_for};

/// A running `poolkeeper run`, killed when it is dropped.
pub struct Operator {
    child: Child,
    listen: String,
    log: PathBuf,
}

impl Operator {
    /// Starts one that looks after `namespace`, and waits until it is ready.
    pub async fn start(namespace: &str, flags: &[&str]) -> Self {
        Self::start_with(&kubeconfig(), namespace, flags).await
    }

    /// The same with another kubeconfig.
    pub async fn start_with(kubeconfig: &Path, namespace: &str, flags: &[&str]) -> Self {
        let operator = Self::spawn(kubeconfig, namespace, flags);
        operator.wait_ready().await;
        operator
    }

    /// Starts one and does not wait.
    pub fn spawn(kubeconfig: &Path, namespace: &str, flags: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let listen = format!("127.0.0.1:{port}");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("operators");
        std::fs::create_dir_all(&folder).unwrap();
        let log = folder.join(format!("{namespace}-{port}.log"));
        let child = Command::new(env!("CARGO_BIN_EXE_poolkeeper"))
            .args(["run", "--watch-namespace", namespace, "--lease-namespace", namespace, "--listen", &listen])
            .args(["--log-filter", "info,poolkeeper=debug"])
            .args(flags)
            .env("KUBECONFIG", kubeconfig)
            .env_remove("POOLKEEPER_CLUSTER")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .expect("the operator starts");
        Self { child, listen, log }
    }

    /// Waits until it says that it is ready.
    pub async fn wait_ready(&self) {
        wait_for(
            &format!("an operator that is ready; its log is {}", self.log.display()),
            Duration::from_secs(30),
            || async { (self.get("/readyz").await?.0 == 200).then_some(()) },
        )
        .await;
    }

    /// Status and body of one of its pages.
    pub async fn get(&self, path: &str) -> Option<(u16, String)> {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(&self.listen).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let status = answer.split(' ').nth(1)?.parse().ok()?;
        let body = answer.split_once("\r\n\r\n")?.1.to_owned();
        Some((status, body))
    }

    /// One metric's value, by the beginning of its line.
    pub async fn metric(&self, line: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics").await?;
        text.lines().find_map(|l| l.strip_prefix(line)?.trim().parse().ok())
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// SIGTERM; how long it took to end, and whether well.
    pub fn terminate(mut self) -> (Duration, bool) {
        let start = Instant::now();
        let sent = Command::new("kill").args(["-TERM", &self.pid().to_string()]).status().expect("kill");
        assert!(sent.success());
        let ended = self.child.wait().expect("it ends");
        (start.elapsed(), ended.success())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
