//! On the way up.

use super::stage::Stage;
use crate::scaling::{Limit, PodPhase, Step};

#[test]
fn up_at_once() {
    let mut stage = Stage::new(1);
    stage.mail().waiting = 75;
    let decision = stage.look();
    assert_eq!((decision.desired, decision.step, decision.limited_by), (8, Step::Scale(8), None));
}

#[test]
fn from_0_with_the_first_job() {
    for (waiting, due) in [(1, 0), (0, 1)] {
        let mut stage = Stage::new(0);
        (stage.mail().waiting, stage.mail().due) = (waiting, due);
        assert_eq!(stage.look().step, Step::Scale(1));
    }
}

#[test]
fn never_above_max_and_never_below_min() {
    let table = [(0, 0, 2, 8, 2, Limit::Min), (0, 500, 0, 8, 8, Limit::Max), (3, 500, 0, 8, 8, Limit::Max)];
    for (current, waiting, min, max, expected, limit) in table {
        let mut stage = Stage::new(current);
        (stage.rules.min, stage.rules.max) = (min, max);
        stage.mail().waiting = waiting;
        let decision = stage.look();
        assert_eq!((decision.desired, decision.step), (expected, Step::Scale(expected)));
        assert_eq!(decision.limited_by, Some(limit));
    }
}

#[test]
fn bounds_that_contradict_each_other_do_no_harm() {
    let mut stage = Stage::without_stabilization(2);
    (stage.rules.min, stage.rules.max) = (5, 3);
    assert_eq!(stage.look().desired, 3);
    (stage.rules.min, stage.rules.max) = (-7, -3);
    assert_eq!(stage.look().desired, 0);
}

#[test]
fn pods_that_are_pending_are_not_asked_for_twice() {
    let mut stage = Stage::new(10);
    stage.mail().waiting = 100;
    stage.pods.iter_mut().for_each(|pod| pod.phase = PodPhase::Pending);
    assert_eq!(stage.watch(60).step, Step::Hold);
}

#[test]
fn up_while_pods_are_not_known_and_during_a_rollout() {
    let mut stage = Stage::new(1);
    stage.mail().waiting = 40;
    stage.pods_known = false;
    assert_eq!(stage.look().step, Step::Scale(4));
    stage.pods_known = true;
    stage.rolling_out = true;
    assert_eq!(stage.look().step, Step::Scale(4));
}

/// Replicas second by second, each step carried out.
fn steps(stage: &mut Stage, seconds: u64) -> Vec<(u64, i32)> {
    let (mut found, mut before) = (Vec::new(), stage.current);
    for second in 0..seconds {
        let after = stage.turn();
        if after != before {
            found.push((second, after));
            before = after;
        }
        stage.wait(1);
    }
    found
}

#[test]
fn max_scale_up_per_minute_bounds_what_is_added_within_any_60_seconds() {
    let mut stage = Stage::new(0);
    stage.rules.max_up_per_minute = Some(3);
    stage.mail().waiting = 80;
    assert_eq!(steps(&mut stage, 200), [(0, 3), (60, 6), (120, 8)]);
}

#[test]
fn what_was_added_bit_by_bit_is_counted_bit_by_bit() {
    let mut stage = Stage::new(0);
    stage.rules.max_up_per_minute = Some(3);
    stage.mail().waiting = 10;
    assert_eq!(steps(&mut stage, 20), [(0, 1)]);
    stage.mail().waiting = 20;
    assert_eq!(steps(&mut stage, 20), [(0, 2)]);
    stage.mail().waiting = 100;
    assert_eq!(steps(&mut stage, 90), [(0, 3), (20, 4), (40, 5), (60, 6), (80, 7)]);
}

#[test]
fn a_bound_of_0_is_none() {
    let mut stage = Stage::new(0);
    stage.rules.max_up_per_minute = Some(0);
    stage.mail().waiting = 80;
    assert_eq!(stage.look().step, Step::Scale(8));
}

#[test]
fn what_the_rate_holds_is_said() {
    let mut stage = Stage::new(0);
    stage.rules.max_up_per_minute = Some(3);
    stage.mail().waiting = 80;
    let decision = stage.look();
    assert_eq!((decision.desired, &decision.step, decision.limited_by), (8, &Step::Scale(3), Some(Limit::UpRate)));
    stage.carry_out(&decision);
    let decision = stage.look();
    assert_eq!((decision.desired, &decision.step, decision.limited_by), (8, &Step::Hold, Some(Limit::UpRate)));
}

#[test]
fn from_0_to_1_passes_once_a_minute_whatever_was_added() {
    let mut stage = Stage::without_stabilization(2);
    stage.rules.max_up_per_minute = Some(3);
    stage.mail().waiting = 50;
    assert_eq!(stage.turn(), 5);
    stage.mail().waiting = 0;
    stage.wait(10);
    assert_eq!(stage.turn(), 0);
    stage.mail().waiting = 50;
    stage.wait(10);
    assert_eq!(stage.turn(), 1, "though 3 were added within the minute");
    stage.mail().waiting = 0;
    stage.wait(5);
    assert_eq!(stage.turn(), 0);
    stage.mail().waiting = 50;
    stage.wait(5);
    assert_eq!(stage.turn(), 0, "once a minute");
    stage.wait(30);
    assert_eq!(stage.turn(), 2, "the first 3 are a minute old");
}

#[test]
fn a_bound_of_1_wakes_once_a_minute() {
    let mut stage = Stage::without_stabilization(0);
    stage.rules.max_up_per_minute = Some(1);
    let mut woken = Vec::new();
    for second in 0..130 {
        // A job of a few seconds, again and again.
        stage.mail().waiting = u64::from(second % 10 < 4);
        if stage.current == 0 && stage.turn() == 1 {
            woken.push(second);
        } else {
            stage.turn();
        }
        stage.wait(1);
    }
    assert_eq!(woken, [0, 60, 120]);
}

#[test]
fn below_min_by_another_hand_is_put_back_at_once() {
    let mut stage = Stage::new(0);
    stage.rules.min = 6;
    stage.rules.max_up_per_minute = Some(2);
    stage.mail().waiting = 200;
    let decision = stage.look();
    assert_eq!((decision.desired, decision.step), (20, Step::Scale(6)), "growth is bounded, minReplicas is not");
}
