//! Growth by wait.

use std::time::Duration;

use super::stage::{Stage, pod};
use crate::scaling::{JobTypeFacts, PodPhase, Step};

const BOUND: Duration = Duration::from_secs(30);

/// Two replicas suffice for its 20 jobs, but the oldest of them waits too long.
fn late() -> Stage {
    let mut stage = Stage::new(2);
    stage.rules.max_wait = Some(BOUND);
    *stage.mail() = JobTypeFacts { waiting: 5, running: 15, oldest_wait: Some(BOUND * 2), ..stage.mail().clone() };
    stage
}

#[test]
fn grows_by_one_while_the_oldest_runnable_job_is_older_than_max_wait() {
    assert_eq!(late().look().step, Step::Scale(3));
}

#[test]
fn does_not_grow_without_a_reason() {
    type Change = fn(&mut Stage);
    let table: [(&str, Change); 9] = [
        ("no bound", |stage| stage.rules.max_wait = None),
        ("exactly the bound", |stage| stage.mail().oldest_wait = Some(BOUND)),
        ("no wait known", |stage| stage.mail().oldest_wait = None),
        ("paused", |stage| stage.mail().paused = true),
        ("blocked by its cap", |stage| (stage.mail().cap, stage.mail().locks) = (Some(15), 15)),
        ("at most max", |stage| stage.rules.max = 2),
        ("a pod is Pending", |stage| stage.pods[1].phase = PodPhase::Pending),
        ("a pod is not Ready", |stage| stage.pods[1].phase = PodPhase::NotReady),
        ("pods are not known", |stage| stage.pods_known = false),
    ];
    for (name, change) in table {
        let mut stage = late();
        change(&mut stage);
        assert_eq!(stage.look().step, Step::Hold, "{name}");
    }
}

#[test]
fn does_not_grow_while_pods_are_missing_or_too_many() {
    let mut stage = late();
    stage.pods.pop();
    assert_eq!(stage.look().step, Step::Hold, "one is not there yet");
    let mut stage = late();
    stage.pods.push(pod("mail-2"));
    assert_eq!(stage.look().step, Step::Hold, "one is to go");
    stage.pods[2].phase = PodPhase::Terminating;
    assert_eq!(stage.look().step, Step::Scale(3), "one that is going is no replica");
}

#[test]
fn grows_again_every_15_seconds_at_most() {
    let mut stage = late();
    let (mut raised, mut before) = (Vec::new(), stage.current);
    for second in 0..40 {
        if stage.turn() > before {
            raised.push((second, stage.current));
            before = stage.current;
        }
        stage.wait(1);
    }
    assert_eq!(raised, [(0, 3), (15, 4), (30, 5)]);
}

#[test]
fn never_more_replicas_than_jobs_that_could_run_or_do() {
    let mut stage = late();
    (stage.mail().waiting, stage.mail().running) = (1, 3);
    for _ in 0..30 {
        stage.turn();
        stage.wait(15);
    }
    assert_eq!(stage.current, 4);
}

#[test]
fn never_more_replicas_than_caps_let_run() {
    let mut stage = late();
    (stage.mail().cap, stage.mail().locks) = (Some(25), 15);
    for _ in 0..30 {
        stage.turn();
        stage.wait(15);
    }
    assert_eq!(stage.current, 3, "25 jobs at once need 3 pods of 10");
}

#[test]
fn does_not_shrink_back_while_the_wait_lasts_also_without_stabilization() {
    let mut stage = late();
    stage.rules.stabilization = Duration::ZERO;
    stage.rules.max = 4;
    for second in 0..300 {
        let before = stage.current;
        assert!(stage.turn() >= before, "at {second}");
        stage.wait(1);
    }
    assert_eq!(stage.current, 4);
    stage.mail().oldest_wait = Some(Duration::from_secs(1));
    assert_eq!(stage.turn(), 2, "the wait is over");
}

#[test]
fn what_has_grown_is_held_by_stabilization() {
    let mut stage = late();
    assert_eq!(stage.turn(), 3);
    stage.mail().oldest_wait = Some(Duration::from_secs(1));
    assert_eq!(stage.watch(300).step, Step::Hold);
    assert_eq!(stage.watch(1).step, Step::Scale(2));
}

#[test]
fn growth_by_wait_is_within_the_rate() {
    let mut stage = late();
    stage.rules.max_up_per_minute = Some(1);
    assert_eq!(stage.turn(), 3);
    stage.wait(20);
    assert_eq!(stage.turn(), 3);
    stage.wait(40);
    assert_eq!(stage.turn(), 4);
}
