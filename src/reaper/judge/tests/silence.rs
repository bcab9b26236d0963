//! Where silence decides, where it does not, and when it is held.

use super::named;
use super::stage::{Stage, ended, every_five, pool, running};
use crate::protocol::ConnectionId;
use crate::reaper::judge::CALM_LOOK;
use crate::reaper::pods::index::PodEvent;
use crate::reaper::verdict::{Expect, Proof};

#[test]
fn an_unbound_pool_whose_only_container_ended_is_dead_after_a_beat_and_a_half() {
    let mut stage = Stage::new();
    stage.apply(ended(running("w", -60), -1));
    stage.beat("w", "w", -59);
    let dead = stage.run(20.0, |_| {});
    let (when, proof) = &dead[&pool("w")];
    assert_eq!(proof.name(), "NoBeatSinceEnd");
    assert!(matches!(proof.expect(), Expect::Unmoved(_)));
    assert!((7.5..=9.0).contains(when), "{when}");
}

#[test]
fn a_beat_refutes_the_end_of_an_unbound_pool_whatever_the_clocks_say() {
    let mut stage = Stage::new();
    stage.apply(ended(running("w", -60), 1_000));
    stage.beat("w", "w", -59);
    let dead = stage.run(60.0, |stage| {
        if every_five(stage) {
            stage.beat("w", "w", -59);
        }
    });
    assert!(dead.is_empty(), "{dead:?}");
}

#[test]
fn a_pool_whose_pod_is_gone_while_running_is_dead_after_the_timeout_and_never_while_it_beats() {
    let mut stage = Stage::new();
    let pod = stage.bound("w");
    stage.at(6.0).pods(PodEvent::Deleted(pod));
    assert_eq!(named(&stage.react(), "w"), "Silence");
    let dead = stage.run(60.0, |stage| {
        if every_five(stage) && stage.now() <= 40.0 {
            stage.beat("w", "w", -59);
        }
    });
    let (when, proof) = &dead[&pool("w")];
    assert_eq!(proof.name(), "Silent");
    assert_eq!(proof.describe(), "its pod is gone, and host w was silent for 12 s");
    assert!((52.0..=53.5).contains(when), "{when}");
}

#[test]
fn a_pod_that_vanished_while_the_watch_was_down_is_found_by_the_next_list() {
    let mut stage = Stage::new();
    stage.bound("w");
    stage.at(6.0).list(vec![]);
    assert_eq!(named(&stage.react(), "w"), "Silence");
}

#[test]
fn silence_is_counted_anew_after_a_gap_and_on_another_connection() {
    for broken in ["gap", "connection"] {
        let mut stage = Stage::new();
        let pod = stage.bound("w");
        stage.at(6.0).pods(PodEvent::Deleted(pod));
        for second in 6..16 {
            stage.at(f64::from(second)).look();
        }
        if broken == "connection" {
            stage.redis.connection = ConnectionId(2);
        }
        let from = if broken == "gap" { 20.0 } else { 16.0 };
        let dead = stage.at(from).run(40.0, |_| {});
        assert!(dead[&pool("w")].0 >= from + 12.0, "{broken}: {dead:?}");
    }
}

#[test]
fn a_pod_that_runs_but_is_silent_is_reported_and_never_dead() {
    let mut stage = Stage::new();
    stage.bound("w");
    let dead = stage.run(600.0, |_| {});
    assert!(dead.is_empty(), "{dead:?}");
    let judgement = stage.look();
    assert_eq!(judgement.silent_though_running().count(), 1);
    assert_eq!(named(&judgement, "w"), "SilentThoughRunning");
    assert_eq!(judgement.next_look, CALM_LOOK);
}

#[test]
fn many_that_fall_silent_together_are_held_for_one_more_timeout() {
    let mut stage = Stage::new();
    let pods: Vec<_> = (0..10).map(|number| running(&format!("w{number}"), -60)).collect();
    stage.list(pods.clone());
    for number in 0..10 {
        stage.beat(&format!("w{number}"), &format!("w{number}"), -59);
    }
    let beats = |stage: &mut Stage, from: usize| {
        if every_five(stage) {
            for number in from..10 {
                stage.beat(&format!("w{number}"), &format!("w{number}"), -59);
            }
        }
    };
    stage.run(11.0, |stage| beats(stage, 0));
    // Four pods vanish, and their pools fall silent: four of ten are more than a third.
    stage.list(pods[4..].to_vec());
    let mut held = false;
    let dead = stage.run(60.0, |stage| {
        beats(stage, 4);
        held |= stage.react().held_many_at_once;
    });
    assert!(held);
    assert_eq!(dead.len(), 4);
    assert!(dead.values().all(|(when, _)| (34.0..=36.0).contains(when)), "{dead:?}");
}

#[test]
fn three_of_ten_are_no_crowd_and_certain_proofs_are_never_held() {
    let mut stage = Stage::new();
    let pods: Vec<_> = (0..10).map(|number| running(&format!("w{number}"), -60)).collect();
    stage.list(pods.clone());
    let beats = |stage: &mut Stage, from: usize| {
        if every_five(stage) {
            for number in from..10 {
                stage.beat(&format!("w{number}"), &format!("w{number}"), -59);
            }
        }
    };
    stage.run(11.0, |stage| beats(stage, 0));
    stage.list(pods[3..].to_vec());
    let dead = stage.run(60.0, |stage| beats(stage, 3));
    assert!(dead.values().all(|(when, _)| (22.0..=24.0).contains(when)), "{dead:?}");
    stage.list(pods[3..].iter().map(|pod| ended(pod.clone(), 60)).collect());
    let certain = stage.react().dead.into_values().filter(Proof::is_certain).count();
    assert_eq!(certain, 7);
}
