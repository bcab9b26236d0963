//! Figures: order statistics, and the Markdown that shows them.

use std::fmt::Write as _;
use std::time::Duration;

/// Measured times of one kind.
#[derive(Debug, Clone, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Adds one.
    pub fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The smallest time that at least this part of all does not exceed (nearest rank); zero where there is none.
    pub fn quantile(&self, part: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (part * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or_default()
    }

    /// Count, p50, p99 and max, as cells.
    pub fn cells(&self) -> [String; 4] {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|part| ms(self.quantile(part)));
        [self.count().to_string(), p50, p99, max]
    }

    /// p50 and max, as cells.
    pub fn middle_and_most(&self) -> [String; 2] {
        [0.5, 1.0].map(|part| ms(self.quantile(part)))
    }
}

impl FromIterator<Duration> for Times {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        Self(times.into_iter().collect())
    }
}

/// A time in milliseconds, in seconds from ten seconds on.
pub fn ms(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    match ms {
        ms if ms < 10.0 => format!("{ms:.2} ms"),
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms if ms < 10_000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1000.0),
    }
}

/// A table that grows row by row.
#[derive(Debug, Default)]
pub struct Table(String);

impl Table {
    /// With these columns.
    pub fn new<const N: usize>(columns: [&str; N]) -> Self {
        let mut table = Self::default();
        table.row(columns.map(str::to_owned));
        let _ = writeln!(table.0, "|{}", " --- |".repeat(N));
        table
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let line = cells.into_iter().fold(String::from("|"), |line, cell| line + " " + &cell + " |");
        let _ = writeln!(self.0, "{line}");
    }

    /// Its Markdown, below a heading.
    pub fn below(&self, heading: &str, note: &str) -> String {
        format!("### {heading}\n\n{note}\n\n{}\n", self.0)
    }
}
