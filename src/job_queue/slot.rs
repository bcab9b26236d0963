//! When a background task of one kind runs: at most once at a time, again after a while, later each time it fails, and
//! never losing a wish that comes while it runs.

use std::time::Duration;

use rand::Rng as _;
use tokio::time::Instant;

const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LAST: Duration = Duration::from_secs(30);
/// The longest pause between runs that nobody but a rival asks for.
const RIVAL_LAST: Duration = Duration::from_secs(60);
/// After this much quiet, a rival counts as new.
const RIVAL_GONE: Duration = Duration::from_secs(600);

/// One kind of task.
#[derive(Debug)]
pub struct Slot {
    running: bool,
    due: Option<Instant>,
    /// Wished for while it runs.
    again: Option<Instant>,
    failures: u32,
    rivals: u32,
    last_rival: Option<Instant>,
}

impl Default for Slot {
    fn default() -> Self {
        Self { running: false, due: Some(Instant::now()), again: None, failures: 0, rivals: 0, last_rival: None }
    }
}

impl Slot {
    /// One that runs only once it is wished for.
    #[must_use]
    pub fn idle() -> Self {
        Self { due: None, ..Self::default() }
    }

    /// Whether a task that is wanted starts now; if not, `wake_at` comes to be no later than when it will.
    pub fn starts(&mut self, wake_at: &mut Option<Instant>) -> bool {
        let Some(due) = self.due.filter(|_| !self.running) else { return false };
        if due <= Instant::now() {
            self.running = true;
            return true;
        }
        *wake_at = Some(wake_at.map_or(due, |at| at.min(due)));
        false
    }

    /// Has it run as soon as it can; while it runs, once more.
    pub fn soon(&mut self) {
        self.at(Instant::now());
    }

    /// Has it run as soon as it can, unless it runs or waits already.
    pub fn when_free(&mut self) {
        if !self.running && self.due.is_none() {
            self.due = Some(Instant::now());
        }
    }

    /// Has it run no later than this.
    pub fn at(&mut self, at: Instant) {
        let wish = if self.running { &mut self.again } else { &mut self.due };
        *wish = Some(wish.map_or(at, |due| due.min(at)));
    }

    /// Has it run because somebody undid its work: at once the first time, later each time after that.
    pub fn against_a_rival(&mut self) {
        let now = Instant::now();
        if self.last_rival.is_none_or(|last| now - last > RIVAL_GONE) {
            self.rivals = 0;
        }
        let pause = match self.rivals {
            0 => Duration::ZERO,
            more => (RETRY_FIRST * 2_u32.saturating_pow(more.min(6) - 1)).min(RIVAL_LAST),
        };
        self.rivals = self.rivals.saturating_add(1);
        self.last_rival = Some(now);
        // Neither sooner nor later, whatever it waited for before.
        let wish = if self.running { &mut self.again } else { &mut self.due };
        *wish = Some(now + pause);
    }

    /// There was nothing to do when it came to run: what failed before still counts.
    pub fn passed_over(&mut self) {
        self.running = false;
        self.due = self.again.take();
    }

    /// It ended. After a success it is due again after `again_after`, if at all; after a failure in any case.
    pub fn ended(&mut self, succeeded: bool, again_after: Option<Duration>) {
        self.running = false;
        self.failures = if succeeded { 0 } else { self.failures.saturating_add(1) };
        let pause = if succeeded {
            again_after
        } else {
            Some((RETRY_FIRST * 2_u32.saturating_pow(self.failures.min(6) - 1)).min(RETRY_LAST))
        };
        self.due = pause.map(|pause| Instant::now() + pause.mul_f64(rand::rng().random_range(0.8..1.2)));
        if let Some(wish) = self.again.take() {
            self.at(wish);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(slot: &mut Slot) -> bool {
        slot.starts(&mut None)
    }

    #[tokio::test(start_paused = true)]
    async fn it_runs_once_at_a_time_and_again_after_a_while() {
        let mut slot = Slot::default();
        assert!(starts(&mut slot));
        assert!(!starts(&mut slot), "it runs already");
        slot.ended(true, Some(Duration::from_secs(60)));
        let mut wake_at = None;
        assert!(!slot.starts(&mut wake_at));
        tokio::time::advance(wake_at.unwrap() - Instant::now()).await;
        assert!(starts(&mut slot));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wish_while_it_runs_is_not_lost() {
        for succeeded in [true, false] {
            let mut slot = Slot::default();
            assert!(starts(&mut slot));
            slot.soon();
            slot.ended(succeeded, None);
            assert!(starts(&mut slot), "succeeded: {succeeded}");
            slot.ended(true, None);
            assert!(!starts(&mut slot), "one wish, one run");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_count_on_when_there_was_nothing_to_do_in_between() {
        let mut slot = Slot::default();
        let mut waits = Vec::new();
        for _ in 0..4 {
            assert!(starts(&mut slot));
            slot.ended(false, None);
            let mut wake_at = None;
            assert!(!slot.starts(&mut wake_at));
            waits.push(wake_at.unwrap() - Instant::now());
            tokio::time::advance(wake_at.unwrap() - Instant::now()).await;
            assert!(starts(&mut slot));
            slot.passed_over();
            slot.when_free();
        }
        assert!(waits[3] > waits[0] * 4, "{waits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_rival_s_pause_is_kept_whatever_was_waited_for() {
        let mut slot = Slot::idle();
        for _ in 0..5 {
            slot.against_a_rival();
        }
        slot.soon();
        assert!(starts(&mut slot));
        slot.ended(false, None);
        slot.against_a_rival();
        let mut wake_at = None;
        assert!(!slot.starts(&mut wake_at));
        assert!(wake_at.unwrap() - Instant::now() >= Duration::from_secs(16));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_wait_longer_each_time_and_a_bound() {
        let mut slot = Slot::default();
        let mut last = Duration::ZERO;
        for failure in 1..20 {
            let mut wake_at = None;
            while !slot.starts(&mut wake_at) {
                tokio::time::advance(wake_at.unwrap() - Instant::now()).await;
            }
            slot.ended(false, None);
            let mut wake_at = None;
            assert!(!slot.starts(&mut wake_at));
            let pause = wake_at.unwrap() - Instant::now();
            assert!(failure > 5 || pause > last, "{failure}: {pause:?} after {last:?}");
            assert!(pause <= RETRY_LAST.mul_f64(1.2));
            last = pause;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_rival_is_not_fought_at_full_speed() {
        let mut slot = Slot::default();
        let (mut runs, start) = (0, Instant::now());
        while start.elapsed() < Duration::from_secs(60) {
            let mut wake_at = None;
            if slot.starts(&mut wake_at) {
                runs += 1;
                slot.ended(true, None);
                slot.against_a_rival();
            } else if let Some(at) = wake_at {
                tokio::time::advance(at - Instant::now()).await;
            }
        }
        assert!((3..10).contains(&runs), "{runs} runs in a minute");
    }
}
