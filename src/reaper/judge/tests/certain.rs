//! What is certain: a bound container ended, or was replaced, or its kubelet ended the pod.

use super::named;
use super::stage::{Stage, ended, every_five, pool, restarted, running};
use crate::protocol::PoolSeen;
use crate::reaper::verdict::Expect;

#[test]
fn a_bound_container_that_terminated_is_certain_at_once_however_fresh_the_heartbeat() {
    let mut stage = Stage::new();
    let pod = stage.bound("w");
    stage.at(5.1).apply(ended(pod, 4));
    let judgement = stage.react();
    let proof = &judgement.dead[&pool("w")];
    assert_eq!((proof.name(), proof.is_certain(), proof.expect()), ("ContainerEnded", true, Expect::Anything));
    assert_eq!(proof.describe(), "container worker of pod w ended: OOMKilled, exit code 137");
}

#[test]
fn a_bound_container_that_another_replaced_is_certain_even_if_its_end_was_never_seen() {
    let mut stage = Stage::new();
    let pod = stage.bound("w");
    stage.at(5.1).apply(restarted(pod, None, 5));
    assert_eq!(named(&stage.react(), "w"), "ContainerReplaced");
}

#[test]
fn a_container_that_is_said_to_have_started_after_its_worker_is_bound_to_it() {
    for (late, bound) in [(1, true), (2, true), (3, false)] {
        let mut stage = Stage::new();
        let pod = running("w", -60);
        stage.apply(pod.clone());
        let beat = |stage: &mut Stage| {
            if every_five(stage) {
                stage.beat("w", "w", -60 - late);
            }
        };
        stage.run(11.0, beat);
        assert_eq!(stage.redis.bindings.contains_key(&pool("w")), bound, "{late} s late");
        stage.at(11.1).apply(ended(pod, 11));
        assert_eq!(named(&stage.react(), "w") == "ContainerEnded", bound, "{late} s late");
    }
}

#[test]
fn the_pool_of_a_container_that_ended_at_once_is_never_taken_for_its_successors() {
    // It started at 0, and was first seen when the next container ran.
    for (ended, next) in [(0, 1), (0, 2), (1, 2), (1, 3)] {
        let mut stage = Stage::new();
        stage.apply(restarted(running("w", 0), Some(ended), next));
        stage.at(3.0).look();
        stage.at(3.5).beat("first", "w", 0);
        stage.beat("second", "w", next);
        stage.look();
        let bound = stage.redis.bindings.get(&pool("first"));
        assert!(
            bound.is_none_or(|binding| binding.candidates[0].container_id != "w/1"),
            "ended at {ended}, next {next}"
        );
        let dead = stage.run(40.0, |stage| {
            if every_five(stage) {
                stage.beat("second", "w", next);
            }
        });
        assert_eq!(dead.keys().collect::<Vec<_>>(), [&pool("first")], "ended at {ended}, next {next}");
    }
}

#[test]
fn a_successor_that_is_said_to_have_started_late_is_no_proof_of_the_end_of_its_own_pool() {
    let mut stage = Stage::new();
    let pod = stage.bound("w");
    // It is bound while its kubelet still reports the first container; whose end nobody ever reports.
    stage.at(5.5).beat("next", "w", 5);
    stage.look();
    assert_eq!(stage.redis.bindings[&pool("next")].candidates[0].container_id, "w/0");
    stage.at(6.0).apply(restarted(pod, None, 6));
    let judgement = stage.react();
    assert_eq!(named(&judgement, "w"), "ContainerReplaced");
    assert!(!judgement.dead.contains_key(&pool("next")));
}

#[test]
fn a_restart_seen_only_in_last_state_is_certain() {
    let mut stage = Stage::new();
    let pod = stage.bound("w");
    stage.at(5.1).apply(restarted(pod, Some(4), 5));
    assert_eq!(named(&stage.react(), "w"), "ContainerEnded");
}

#[test]
fn a_restarted_operator_knows_the_binding_and_finds_two_restarts_later_that_the_container_is_gone() {
    let mut stage = Stage::new();
    let pod = stage.bound("w");
    let twice = restarted(restarted(pod, Some(4), 5), Some(7), 8);
    stage.at(9.0).restart_operator(vec![twice]);
    assert_eq!(named(&stage.look(), "w"), "ContainerReplaced");
}

#[test]
fn on_a_tie_or_later_the_binding_is_wrong_and_the_pool_is_bound_anew_to_the_new_container() {
    for (finished, started) in [(5, 6), (4, 4)] {
        let mut stage = Stage::new();
        let pod = stage.bound("w");
        // The next process starts in the next container, but its kubelet still reports the first one running.
        stage.at(5.5).beat("next", "w", 5);
        stage.look();
        assert_eq!(stage.redis.bindings[&pool("next")].candidates[0].container_id, "w/0");
        stage.at(6.0).apply(restarted(pod, Some(finished), started));
        let judgement = stage.react();
        assert_eq!(named(&judgement, "w"), "ContainerEnded");
        assert_ne!(named(&judgement, "next"), "ContainerEnded", "finished {finished}");
        let dead = stage.run(40.0, |stage| {
            if every_five(stage) {
                stage.beat("next", "w", 6);
            }
        });
        assert!(!dead.contains_key(&pool("next")), "finished {finished}: {dead:?}");
        assert_eq!(stage.redis.bindings[&pool("next")].candidates[0].container_id, "w/1");
    }
}

#[test]
fn c05_the_old_process_of_a_restarted_container_is_dead_soon_and_the_new_one_lives() {
    let mut stage = Stage::new();
    let pod = restarted(running("mailer", -3600), Some(-6), -5);
    stage.apply(pod);
    stage.beat("b", "mailer", -4);
    stage.redis.pools.insert(pool("a"), stage.redis.pools[&pool("b")].clone());
    stage.beat("a", "mailer", -3600);
    let dead = stage.run(60.0, |stage| {
        if every_five(stage) {
            stage.beat("b", "mailer", -4);
        }
    });
    let (when, proof) = &dead[&pool("a")];
    assert_eq!(proof.name(), "NoBeatSinceEnd");
    assert!((7.5..=9.0).contains(when), "{when}");
    assert_eq!(dead.len(), 1, "{dead:?}");
}

#[test]
fn a_failed_or_succeeded_pod_is_certain_only_by_its_container_or_its_kubelet() {
    let table: [(&str, Option<&str>, bool, &str); 7] = [
        ("Failed", Some("Evicted"), false, "PodEnded"),
        ("Failed", Some("Terminated"), false, "PodEnded"),
        ("Failed", Some("NodeShutdown"), false, "PodEnded"),
        ("Failed", None, false, "Silence"),             // the pod garbage collector
        ("Failed", Some("NodeLost"), false, "Silence"), // the node controller
        ("Succeeded", None, true, "ContainerEnded"),
        ("Failed", Some("Evicted"), true, "ContainerEnded"),
    ];
    for (phase, reason, terminated, expected) in table {
        let mut stage = Stage::new();
        let mut pod = stage.bound("w");
        if terminated {
            pod = ended(pod, 5);
        } else {
            pod.containers[0].current = None; // as after ContainerStatusUnknown
        }
        pod.phase = phase.into();
        pod.reason = reason.map(Into::into);
        stage.at(5.5).apply(pod);
        assert_eq!(named(&stage.react(), "w"), expected, "{phase} {reason:?}");
    }
}

#[test]
fn a_failed_pod_whose_container_is_still_listed_as_running_is_not_certain() {
    let mut stage = Stage::new();
    let mut pod = stage.bound("w");
    pod.phase = "Failed".into();
    stage.at(5.5).apply(pod);
    assert_eq!(named(&stage.react(), "w"), "Silence");
}

#[test]
fn deletion_asked_for_is_not_death() {
    let mut stage = Stage::new();
    let mut pod = stage.bound("w");
    pod.deleting = true;
    stage.at(5.5).apply(pod.clone());
    assert_eq!(named(&stage.react(), "w"), "living");
    let dead = stage.run(60.0, |stage| {
        if every_five(stage) {
            stage.beat("w", "w", -59);
        }
    });
    assert!(dead.is_empty(), "{dead:?}");
    stage.apply(ended(pod, 60));
    assert_eq!(named(&stage.react(), "w"), "ContainerEnded");
}

#[test]
fn a_bound_pool_whose_heartbeat_somebody_deleted_is_still_dead_when_its_container_is() {
    let mut stage = Stage::new();
    let pod = stage.bound("w");
    stage.redis.pools.insert(pool("w"), PoolSeen::default());
    stage.at(6.0).restart_operator(vec![pod.clone()]);
    assert_eq!(named(&stage.look(), "w"), "living");
    stage.apply(ended(pod, 6));
    assert_eq!(named(&stage.react(), "w"), "ContainerEnded");
}
