//! On the way down, before busy pods are looked at.

use std::time::Duration;

use super::stage::{Stage, busy};
use crate::scaling::{Limit, Step, Unread};

#[test]
fn not_below_the_highest_recommendation_of_the_stabilization_window() {
    let mut stage = Stage::new(0);
    stage.mail().waiting = 80;
    assert_eq!(stage.turn(), 8);
    stage.watch(10);
    stage.mail().waiting = 30;
    let decision = stage.watch(300);
    assert_eq!((decision.desired, decision.step, decision.limited_by), (8, Step::Hold, Some(Limit::Stabilization)));
    assert_eq!(stage.watch(1).step, Step::Scale(3));
}

#[test]
fn each_recommendation_holds_for_its_own_window() {
    let mut stage = Stage::new(0);
    stage.mail().waiting = 80;
    assert_eq!(stage.turn(), 8);
    stage.mail().waiting = 50;
    stage.watch(100);
    stage.mail().waiting = 30;
    stage.watch(201);
    assert_eq!(stage.turn(), 5);
    stage.watch(99);
    assert_eq!(stage.turn(), 5);
    stage.watch(1);
    assert_eq!(stage.turn(), 3);
}

#[test]
fn what_was_recommended_earlier_adds_nothing() {
    let mut stage = Stage::new(0);
    stage.rules.max_up_per_minute = Some(3);
    stage.mail().waiting = 80;
    assert_eq!(stage.turn(), 3);
    stage.mail().waiting = 20;
    assert_eq!(stage.watch(100).step, Step::Hold, "8 were recommended, 2 are");
}

#[test]
fn nothing_is_lowered_before_it_was_watched_for_a_whole_window() {
    let mut stage = Stage::new(6);
    stage.mail().waiting = 15;
    assert_eq!(stage.look().step, Step::Hold);
    assert_eq!(stage.watch(299).step, Step::Hold);
    assert_eq!(stage.watch(1).step, Step::Scale(2));
}

#[test]
fn time_that_nobody_watched_does_not_count() {
    // Redis is away for so long: a failed pass decides nothing.
    for away in [900, 3_600, 86_400] {
        let mut stage = Stage::new(4);
        stage.mail().waiting = 40;
        stage.watch(100);
        stage.mail().waiting = 0;
        stage.wait(away);
        let mut busier = stage.clone();
        assert_eq!(stage.look().step, Step::Hold, "after {away} s");
        assert_eq!(stage.watch(299).step, Step::Hold);
        assert_eq!(stage.watch(1).step, Step::Scale(0));
        busier.mail().waiting = 70;
        assert_eq!(busier.look().step, Step::Scale(7), "what came meanwhile counts at once");
    }
}

#[test]
fn to_0_counts_from_the_last_activity() {
    let mut stage = Stage::new(1);
    stage.watch(290);
    stage.mail().running = 1;
    stage.watch(5);
    stage.mail().running = 0;
    assert_eq!(stage.watch(300).step, Step::Hold);
    assert_eq!(stage.watch(1).step, Step::Scale(0));
}

#[test]
fn without_stabilization_at_once() {
    let mut stage = Stage::without_stabilization(9);
    stage.mail().waiting = 25;
    assert_eq!(stage.look().step, Step::Scale(3));
}

#[test]
fn bounds_take_effect_at_once() {
    let mut stage = Stage::new(0);
    stage.mail().waiting = 500;
    assert_eq!(stage.turn(), 20);
    stage.rules.max = 7;
    let decision = stage.look();
    assert_eq!((decision.desired, decision.step, decision.limited_by), (7, Step::Scale(7), Some(Limit::Max)));
}

#[test]
fn a_lowered_min_takes_effect_at_once() {
    let mut stage = Stage::new(5);
    stage.rules.min = 5;
    stage.watch(301);
    stage.rules.min = 2;
    assert_eq!(stage.look().step, Step::Scale(2));
}

#[test]
fn above_max_by_another_hand_is_put_back_at_once_with_protection() {
    let mut stage = Stage::new(30);
    assert_eq!(stage.look().step, Step::Scale(20));
    stage.pods[3] = busy("mail-3");
    assert!(matches!(stage.look().step, Step::MarkBusy { .. }));
}

#[test]
fn a_spoiled_type_does_not_keep_others_from_scaling_but_nothing_goes_to_0_because_of_it() {
    let mut stage = Stage::without_stabilization(6);
    stage.types.push(super::stage::job_type("report"));
    stage.types[1].unread = Some(Unread::JobType);
    stage.mail().waiting = 90;
    assert_eq!(stage.turn(), 9);
    stage.mail().waiting = 30;
    assert_eq!(stage.turn(), 3);
    stage.mail().waiting = 0;
    let decision = stage.look();
    assert_eq!(
        (decision.desired, &decision.step, decision.limited_by),
        (1, &Step::Scale(1), Some(Limit::UnreadJobType))
    );
    stage.carry_out(&decision);
    assert_eq!(stage.look().step, Step::Hold);
    stage.types[1].unread = None;
    assert_eq!(stage.turn(), 0);
    stage.types[1].unread = Some(Unread::JobType);
    assert_eq!(stage.turn(), 0, "nothing is raised because of it");
}

#[test]
fn what_a_spoiled_type_kept_counts_as_activity() {
    let mut stage = Stage::new(1);
    stage.mail().unread = Some(Unread::JobType);
    stage.watch(600);
    stage.mail().unread = None;
    assert_eq!(stage.watch(300).step, Step::Hold);
    assert_eq!(stage.watch(1).step, Step::Scale(0));
}

#[test]
fn nothing_is_lowered_while_pods_are_not_known() {
    for protect_busy in [true, false] {
        let mut stage = Stage::without_stabilization(9);
        stage.pods_known = false;
        stage.rules.protect_busy = protect_busy;
        let decision = stage.look();
        assert_eq!((decision.desired, decision.step, decision.limited_by), (0, Step::Hold, Some(Limit::PodsUnknown)));
        stage.rules.max = 5;
        assert_eq!(stage.look().step, Step::Hold, "bounds neither");
    }
}

#[test]
fn a_window_that_is_changed_counts_at_once() {
    let mut stage = Stage::new(6);
    stage.watch(100);
    stage.rules.stabilization = Duration::from_secs(60);
    assert_eq!(stage.look().step, Step::Scale(0));
}
