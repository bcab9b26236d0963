//! The operator as a process of its own: the program that `make build` makes.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::kube::{kubeconfig, wait_for};

/// A running `poolkeeper run`, killed when it is dropped.
pub struct Operator {
    child: Child,
    listen: String,
}

/// What the kernel says of the process.
pub struct Usage {
    /// Resident memory now, in MiB.
    pub resident: f64,
    /// The most that it ever was, in MiB.
    pub peak: f64,
    /// Processor time so far.
    pub processor: Duration,
    /// When it was read.
    pub at: Instant,
}

impl Operator {
    /// Starts one for all namespaces, with its defaults, and waits until it is ready. `lease` is the namespace of its
    /// Lease.
    pub async fn start(lease: &str) -> Self {
        Self::start_as(lease, &kubeconfig()).await
    }

    /// The same, as whom this kubeconfig says.
    pub async fn start_as(lease: &str, kubeconfig: &Path) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let listen = format!("127.0.0.1:{port}");
        let log = folder().join(format!("operator-{port}.log"));
        let child = Command::new(program())
            .args(["run", "--lease-namespace", lease, "--listen", &listen])
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .expect("the operator starts");
        let operator = Self { child, listen };
        let what = format!("an operator that is ready; its log is {}", log.display());
        wait_for(&what, Duration::from_secs(60), || async {
            operator.page("/readyz").await.filter(|page| page.starts_with("HTTP/1.1 200"))
        })
        .await;
        operator
    }

    async fn page(&self, path: &str) -> Option<String> {
        let mut stream = tokio::net::TcpStream::connect(&self.listen).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }

    /// The sum of one counter over all its labels.
    pub async fn counter(&self, name: &str) -> f64 {
        let page = self.page("/metrics").await.expect("metrics");
        let lines = page.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// What it uses.
    pub fn usage(&self) -> Usage {
        let read = |file| std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).expect("a process");
        let status = read("status");
        let mib = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a field");
            line.trim().trim_end_matches(" kB").parse::<f64>().expect("a size") / 1024.0
        };
        let stat = read("stat");
        // After the name in brackets: utime and stime are the 12th and 13th, in hundredths of a second (proc(5)).
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().expect("ticks")).sum();
        Usage {
            resident: mib("VmRSS:"),
            peak: mib("VmHWM:"),
            processor: Duration::from_millis(ticks * 10),
            at: Instant::now(),
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program, by `hack/bench`.
pub fn program() -> PathBuf {
    std::env::var_os("BENCH_OPERATOR").expect("BENCH_OPERATOR is not set; run hack/bench").into()
}

/// Where logs go.
pub fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
