//! Situations that went wrong for people.

use super::stage::{Stage, busy, job_type};
use crate::scaling::{PodPhase, Step, demand};

/// C11: a queue that is paused with a backlog gets no pods, and gets them when it goes on.
#[test]
fn c11_a_paused_queue_with_a_backlog() {
    let mut stage = Stage::new(0);
    (stage.mail().waiting, stage.mail().paused) = (500, true);
    assert_eq!(stage.watch(60).step, Step::Hold);
    // A dead pool's job went back to the queue.
    stage.mail().waiting = 501;
    let decision = stage.watch(60);
    assert_eq!((decision.desired, decision.step), (0, Step::Hold));
    assert_eq!(demand(&stage.types, &stage.rules, 10).paused, 501);
    stage.mail().paused = false;
    assert_eq!(stage.look().step, Step::Scale(20), "51 would be asked for, 20 are allowed");
}

/// C11: what runs when it is paused keeps its pods until it is done.
#[test]
fn c11_pausing_ends_no_job() {
    let mut stage = Stage::without_stabilization(3);
    (stage.mail().waiting, stage.mail().paused, stage.mail().running) = (500, true, 2);
    for index in 0..2 {
        stage.pods[index] = busy(&format!("mail-{index}"));
    }
    let decision = stage.look();
    assert_eq!(decision.desired, 1);
    if let Step::MarkBusy { costs } = decision.step {
        stage.mark(&costs);
    }
    assert_eq!(stage.turn(), 2);
}

/// C11: other types of the queue scale as ever.
#[test]
fn c11_only_the_paused_type_asks_for_nothing() {
    let mut stage = Stage::new(0);
    (stage.mail().waiting, stage.mail().paused) = (500, true);
    stage.types.push(job_type("report"));
    stage.types[1].waiting = 11;
    assert_eq!(stage.look().step, Step::Scale(2));
}

/// C23: the target is left where it is, before and after Redis was away.
#[test]
fn c23_the_first_look_after_redis_was_away_lowers_nothing() {
    let mut stage = Stage::new(4);
    stage.mail().waiting = 40;
    stage.watch(400);
    stage.wait(900);
    stage.mail().waiting = 0;
    assert_eq!(stage.look().step, Step::Hold);
    stage.mail().waiting = 70;
    assert_eq!(stage.look().step, Step::Scale(7), "up at once");
}

/// C27 (a): 100 jobs, 10 for each replica; the pods stay Pending for 10 minutes.
#[test]
fn c27a_pods_that_stay_pending_are_asked_for_once() {
    for max_wait in [None, Some(std::time::Duration::from_secs(30))] {
        let mut stage = Stage::new(0);
        stage.rules.max = 50;
        (stage.rules.jobs_per_replica, stage.rules.max_wait) = (Some(10), max_wait);
        stage.mail().waiting = 100;
        for second in 0..600 {
            stage.mail().oldest_wait = Some(std::time::Duration::from_secs(second));
            assert_eq!(stage.turn(), 10, "at {second}");
            stage.pods.iter_mut().for_each(|pod| pod.phase = PodPhase::Pending);
            stage.wait(1);
        }
    }
}

/// C27 (b): nothing waits at any look, 8 jobs run on two pods of 4.
#[test]
fn c27b_busy_and_keeping_up() {
    let mut stage = Stage::new(2);
    stage.concurrency = 4;
    stage.mail().running = 8;
    stage.pods.iter_mut().for_each(|pod| pod.running = 4);
    for second in 0..1200 {
        assert_eq!(stage.turn(), 2, "at {second}");
        stage.wait(1);
    }
    stage.mail().running = 0;
    stage.pods.iter_mut().for_each(|pod| pod.running = 0);
    for second in 0..300 {
        assert_eq!(stage.turn(), 2, "idle for {second} s");
        stage.wait(1);
    }
    assert_eq!(stage.turn(), 0);
}

/// C27 (b) where one replica would do by ratio: both pods are busy all the same.
#[test]
fn c27b_busy_pods_stay_though_fewer_would_do() {
    let mut stage = Stage::new(2);
    stage.concurrency = 4;
    stage.rules.jobs_per_replica = Some(100);
    stage.mail().running = 8;
    stage.pods.iter_mut().for_each(|pod| pod.running = 4);
    for _ in 0..1200 {
        assert_eq!(stage.turn(), 2);
        stage.wait(1);
    }
}
