//! When a decision changes by itself.

use std::time::Duration;

use super::stage::{Stage, busy};

fn seconds(after: Option<Duration>) -> Option<u64> {
    after.map(|after| after.as_secs())
}

#[test]
fn nothing_changes_by_itself_while_nothing_is_held() {
    let mut stage = Stage::new(2);
    stage.mail().waiting = 20;
    assert_eq!(stage.watch(301).next_change, None);
    let mut stage = Stage::without_stabilization(1);
    stage.pods[0] = busy("mail-0");
    assert_eq!(stage.look().next_change, None, "busy pods are facts");
}

#[test]
fn when_stabilization_runs_out_or_after_a_minute() {
    let mut stage = Stage::new(6);
    stage.mail().waiting = 15;
    assert_eq!(seconds(stage.look().next_change), Some(60));
    assert_eq!(seconds(stage.watch(250).next_change), Some(50));
    assert_eq!(stage.watch(50).next_change, None, "down to what is recommended");
}

#[test]
fn not_when_min_holds_anyway() {
    let mut stage = Stage::new(6);
    stage.rules.min = 6;
    assert_eq!(stage.look().next_change, None);
}

#[test]
fn when_the_rate_refills() {
    let mut stage = Stage::new(0);
    stage.rules.max_up_per_minute = Some(3);
    stage.mail().waiting = 80;
    stage.turn();
    assert_eq!(seconds(stage.watch(20).next_change), Some(40));
}

#[test]
fn when_the_wait_passes_its_bound_and_when_growth_goes_on() {
    let mut stage = Stage::new(2);
    stage.rules.max_wait = Some(Duration::from_secs(30));
    (stage.mail().waiting, stage.mail().oldest_wait) = (15, Some(Duration::from_secs(10)));
    assert_eq!(seconds(stage.look().next_change), Some(21), "waits are known to the second");
    stage.mail().oldest_wait = Some(Duration::from_secs(31));
    stage.wait(21);
    assert_eq!(stage.turn(), 3);
    assert_eq!(seconds(stage.watch(5).next_change), Some(10));
}
