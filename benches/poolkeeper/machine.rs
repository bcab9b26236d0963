//! On what it was measured.

use std::fmt::Write as _;
use std::process::Command;

/// Machine, versions and date, as a list.
pub fn described() -> String {
    let cpu = read("/proc/cpuinfo");
    let model = field(&cpu, "model name").unwrap_or("unknown processor");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = read("/proc/meminfo");
    let memory = field(&memory, "MemTotal").and_then(|total| total.trim_end_matches(" kB").parse::<f64>().ok());
    let mut lines = String::new();
    let mut line = |what: &str, value: &str| {
        let _ = writeln!(lines, "- {what}: {value}");
    };
    line("command", &std::env::var("BENCH_COMMAND").unwrap_or_else(|_| "hack/bench".into()));
    line("date", &k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string());
    line("commit", &output("git", &["describe", "--always", "--dirty"]));
    line(
        "machine",
        &format!(
            "{cores} processors ({model}), {:.0} GiB, Linux {}",
            memory.unwrap_or_default() / 1024.0 / 1024.0,
            read("/proc/sys/kernel/osrelease").trim()
        ),
    );
    line(
        "versions",
        &format!(
            "Kubernetes {}, {}, {}, gocraft/work v0.5.1",
            std::env::var("BENCH_KUBERNETES").unwrap_or_default(),
            output("redis-server", &["--version"]).split_whitespace().take(3).collect::<Vec<_>>().join(" "),
            output("rustc", &["--version"]),
        ),
    );
    line(
        "load of the machine at the start (1, 5, 15 minutes)",
        &read("/proc/loadavg").split_whitespace().take(3).collect::<Vec<_>>().join(", "),
    );
    lines
}

/// The load average of the last minute.
pub fn load() -> String {
    read("/proc/loadavg").split_whitespace().next().unwrap_or_default().to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}
