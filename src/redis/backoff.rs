//! How long to wait before another try: exponentially longer, with jitter, so that replicas do not knock together.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// The wait after failures in a row: 100 ms, doubled each time, at most 10 s; of that a random 50 to 100 %.
#[derive(Debug, Default, Clone)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Counts one more failure and tells how long to wait.
    pub fn next_wait(&mut self) -> Duration {
        let full = FIRST.saturating_mul(1 << self.failures.min(10)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        full.mul_f64(0.5 + 0.5 * rand::random::<f64>())
    }

    /// Forgets past failures.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_ten_seconds_and_start_over() {
        let mut backoff = Backoff::default();
        for full in [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000] {
            let wait = backoff.next_wait().as_millis();
            assert!((full / 2..=full).contains(&wait), "{wait} ms of {full}");
        }
        backoff.reset();
        assert!(backoff.next_wait() <= Duration::from_millis(100));
    }
}
