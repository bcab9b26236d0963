//! Every sentence of "Dead means dead", one test each.

mod simulation;
mod stage;

use std::sync::Arc;

use super::*;
use crate::protocol::{ConnectionId, PoolSeen};
use crate::reaper::pods::index::PodEvent;
use crate::reaper::verdict::{Decider, Expect};
use stage::{Stage, ended, every_five, pool, restarted, running};

fn named(judgement: &Judgement, name: &str) -> &'static str {
    match (judgement.dead.get(&pool(name)), judgement.undecided.get(&pool(name))) {
        (Some(proof), _) => proof.name(),
        (None, Some(decider)) => decider.name(),
        (None, None) if judgement.living.contains(&pool(name)) => "living",
        (None, None) => "nowhere",
    }
}

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

fn sharing(names: &[&str]) -> Vec<crate::reaper::pods::WorkerPod> {
    let shared = |name: &&str| {
        let mut pod = running(name, -60);
        pod.hosts = [crate::reaper::host::HostKey::of("worker")].into();
        pod
    };
    names.iter().map(shared).collect()
}

#[test]
fn c53_of_several_pods_with_one_host_name_only_the_silent_pool_dies_when_a_pod_does() {
    let mut stage = Stage::new();
    let pods = sharing(&["w1", "w2", "w3"]);
    stage.list(pods.clone());
    let beats = |stage: &mut Stage, alive: &[i64]| {
        if every_five(stage) {
            for number in alive {
                stage.beat_as(&format!("p{number}"), "worker", -59 + number, "1");
            }
        }
    };
    let dead = stage.run(11.0, |stage| beats(stage, &[1, 2, 3]));
    assert!(dead.is_empty());
    assert!(stage.redis.bindings.values().all(|binding| binding.candidates.len() == 3));
    assert!(stage.look().shared_hosts.iter().any(|host| host.as_str() == "worker"));
    stage.at(12.0).apply(ended(pods[1].clone(), 12));
    stage.pods(PodEvent::Deleted(ended(pods[1].clone(), 12)));
    let dead = stage.run(100.0, |stage| beats(stage, &[1, 3]));
    assert_eq!(dead.keys().collect::<Vec<_>>(), [&pool("p2")]);
    let (when, proof) = &dead[&pool("p2")];
    assert_eq!(proof.name(), "SharedHostSilent");
    assert!((20.0..=25.0).contains(when), "10 to 15 s after the last beat at 10: {when}");
}

#[test]
fn of_a_shared_host_name_at_most_as_many_processes_die_as_have_ended() {
    let mut stage = Stage::new();
    let pods = sharing(&["w1", "w2", "w3"]);
    stage.list(pods.clone());
    let beats = |stage: &mut Stage, alive: &[i64]| {
        if every_five(stage) {
            for number in alive {
                stage.beat_as(&format!("p{number}"), "worker", -59 + number, "1");
                stage.beat_as(&format!("q{number}"), "worker", -59 + number, "1");
            }
        }
    };
    stage.run(11.0, |stage| beats(stage, &[1, 2, 3]));
    stage.at(11.0).apply(ended(pods[1].clone(), 11));
    // p1 is frozen, p2 is the one that ended; one of the two processes may go, with both of its pools.
    let dead = stage.run(100.0, |stage| beats(stage, &[3]));
    assert_eq!(dead.len(), 2, "{dead:?}");
    let judgement = stage.look();
    let more = judgement.undecided.values().filter(|one| matches!(one, Decider::MoreSilentThanEnded { .. }));
    assert_eq!(more.count(), 2);
}

#[test]
fn a_host_name_that_another_cluster_claims_too_makes_no_binding() {
    let mut stage = Stage::new();
    stage.claim("here", "mail", &["w"]);
    stage.claim("there", "mail", &["w"]);
    let pod = running("w", -60);
    stage.apply(pod.clone());
    let dead = stage.run(11.0, |stage| {
        if every_five(stage) {
            stage.beat("w", "w", -59);
        }
    });
    assert!(dead.is_empty() && stage.redis.bindings.is_empty());
    stage.at(11.0).apply(ended(pod, 11));
    assert_eq!(named(&stage.react(), "w"), "SharedHost");
    let dead = stage.run(40.0, |_| {});
    assert_eq!(dead[&pool("w")].1.name(), "SharedHostSilent");
}

#[test]
fn another_queue_of_the_namespace_with_the_same_pods_shares_no_host_name() {
    let mut stage = Stage::new();
    stage.claim("here", "mail", &["w"]);
    stage.claim("here", "other", &["w"]);
    stage.bound("w");
}

#[test]
fn no_binding_is_made_while_another_pod_of_the_host_name_may_have_started() {
    let mut stage = Stage::new();
    let mut pods = sharing(&["w1", "w2"]);
    pods[1].containers[0].current = None;
    stage.list(pods);
    stage.run(11.0, |stage| {
        if every_five(stage) {
            stage.beat("p2", "worker", -1);
        }
    });
    assert!(stage.redis.bindings.is_empty());
}

#[test]
fn a_binding_waits_for_a_beat_and_for_a_container_that_started_no_later() {
    let mut stage = Stage::new();
    stage.apply(running("w", -60));
    stage.beat("w", "w", -59);
    stage.beat("x", "w", -61);
    stage.look();
    assert!(stage.redis.bindings.is_empty(), "not seen to move yet");
    stage.run(11.0, |stage| {
        if every_five(stage) {
            stage.beat("w", "w", -59);
            stage.beat("x", "w", -61);
        }
    });
    assert_eq!(stage.redis.bindings.keys().collect::<Vec<_>>(), [&pool("w")]);
}

#[test]
fn several_candidates_become_one_when_the_others_are_ruled_out() {
    let mut stage = Stage::new();
    let pods = sharing(&["w1", "w2"]);
    stage.list(pods.clone());
    let beat = |stage: &mut Stage| {
        if every_five(stage) {
            stage.beat("p1", "worker", -59);
        }
    };
    stage.run(11.0, beat);
    assert_eq!(stage.redis.bindings[&pool("p1")].candidates.len(), 2);
    stage.at(11.0).pods(PodEvent::Deleted(ended(pods[1].clone(), 11)));
    stage.run(31.0, beat);
    let left = &stage.redis.bindings[&pool("p1")].candidates;
    assert_eq!(left.iter().map(|one| one.pod.as_str()).collect::<Vec<_>>(), ["w1"]);
}

#[test]
fn a_newer_process_in_the_same_container_makes_the_silent_one_subject_to_silence() {
    for (pid, expected) in [("8", Some("Superseded")), ("7", None)] {
        let mut stage = Stage::new();
        stage.apply(running("w", -60));
        let dead = stage.run(60.0, |stage| {
            if every_five(stage) {
                stage.beat_as("new", "w", 3, pid);
                if stage.now() < 3.0 {
                    stage.beat_as("old", "w", -59, "7");
                }
            }
        });
        assert_eq!(dead.get(&pool("old")).map(|(_, proof)| proof.name()), expected, "pid {pid}");
        assert!(!dead.contains_key(&pool("new")));
    }
}

#[test]
fn containers_that_run_no_workers_prove_nothing() {
    let mut stage = Stage::new();
    stage.containers = vec!["worker".into()];
    let mut pod = running("w", -60);
    let mut log = pod.containers[0].clone();
    log.name = "log".into();
    log.current.as_mut().unwrap().id = "w/log".into();
    pod.containers = [pod.containers[0].clone(), log].into();
    stage.apply(pod.clone());
    let beat = |stage: &mut Stage| {
        if every_five(stage) {
            stage.beat("w", "w", -59);
        }
    };
    stage.run(11.0, beat);
    assert_eq!(stage.redis.bindings[&pool("w")].candidates.len(), 1);
    pod.containers[1].current.as_mut().unwrap().end = Some(stage::end(Some(11)));
    stage.apply(pod);
    assert!(stage.run(60.0, beat).is_empty());
}

#[test]
fn an_outsider_is_dead_after_its_own_timeout_or_never() {
    let mut stage = Stage::new();
    stage.claim("here", "mail", &["w"]);
    stage.beat("laptop", "laptop", -59);
    let dead = stage.run(100.0, |_| {});
    let (when, proof) = &dead[&pool("laptop")];
    assert_eq!(proof.name(), "OutsiderSilent");
    assert!((60.0..=63.0).contains(when), "{when}");

    let mut stage = Stage::new();
    stage.set_settings(|settings| settings.outsider_timeout = None);
    stage.beat("laptop", "laptop", -59);
    assert!(stage.run(600.0, |_| {}).is_empty());
    assert_eq!(named(&stage.look(), "laptop"), "living");
}

#[test]
fn a_host_of_our_own_claim_without_a_pod_is_unknown_and_one_of_another_claim_is_not_ours() {
    let mut stage = Stage::new();
    stage.claim("here", "mail", &["w"]);
    stage.claim("there", "mail", &["v"]);
    stage.beat("w", "w", -59);
    stage.beat("v", "v", -59);
    let dead = stage.run(100.0, |_| {});
    let (when, proof) = &dead[&pool("w")];
    assert_eq!(proof.describe(), "it has no pod, and host w was silent for 12 s");
    assert!((12.0..=13.5).contains(when), "{when}");
    assert!(!dead.contains_key(&pool("v")));
}

#[test]
fn c01_an_id_without_a_heartbeat_is_acted_on_at_the_second_look_a_timeout_later() {
    let mut stage = Stage::new();
    stage.redis.pools.insert(pool("d"), PoolSeen::default());
    stage.jobs("d", 2);
    let dead = stage.run(30.0, |_| {});
    let (when, proof) = &dead[&pool("d")];
    assert_eq!((proof.name(), proof.expect()), ("UnknownPool", Expect::Absent));
    assert!((12.0..=13.5).contains(when), "{when}");
}

#[test]
fn c01_an_id_whose_heartbeat_shows_up_is_left_alone() {
    let mut stage = Stage::new();
    stage.redis.pools.insert(pool("d"), PoolSeen::default());
    let dead = stage.run(100.0, |stage| {
        if stage.now() >= 3.0 && every_five(stage) {
            stage.beat("d", "laptop", 3);
        }
    });
    assert!(dead.is_empty(), "{dead:?}");
}

#[test]
fn an_id_without_a_heartbeat_waits_longer_when_a_pod_started_meanwhile() {
    let mut stage = Stage::new();
    stage.redis.pools.insert(pool("d"), PoolSeen::default());
    let dead = stage.run(100.0, |stage| {
        if (stage.now() - 3.0).abs() < 0.01 {
            stage.apply(running("w", 3));
        }
    });
    let (when, _) = &dead[&pool("d")];
    assert!((60.0..=61.5).contains(when), "{when}");
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

#[test]
fn what_a_reaped_pool_writes_late_is_settled_at_once() {
    let mut stage = Stage::new();
    stage.redis.reaped.insert(pool("d"), stage.redis.redis_time);
    stage.redis.pools.insert(pool("d"), PoolSeen::default());
    assert_eq!(named(&stage.look(), "d"), "ReapedBefore");
    stage.jobs("e", 1);
    stage.redis.reaped.insert(pool("e"), stage.redis.redis_time);
    stage.redis.pools.insert(pool("e"), PoolSeen::default());
    assert_eq!(named(&stage.at(1.0).look(), "e"), "UnknownPool");
    assert_eq!(named(&stage.at(2.0).look(), "e"), "ReapedBefore");
}

#[test]
fn a_reaped_pool_that_beats_again_is_named_once_and_lives() {
    let mut stage = Stage::new();
    stage.redis.reaped.insert(pool("w"), stage.redis.redis_time);
    stage.beat("w", "w", -59);
    stage.apply(running("w", -60));
    let mut named_times = 0;
    let mut last = Judgement::default();
    for second in 0..40 {
        stage.at(f64::from(second));
        if every_five(&stage) {
            stage.beat("w", "w", -59);
        }
        last = stage.look();
        assert!(!last.dead.contains_key(&pool("w")), "second {second}");
        named_times += last.resurrected.len();
    }
    assert_eq!(named_times, 1);
    assert_eq!(named(&last, "w"), "living");
    // One that only left a heartbeat behind is settled when it has not moved for a beat and a half.
    let mut stage = Stage::new();
    stage.redis.reaped.insert(pool("v"), stage.redis.redis_time);
    stage.beat("v", "v", -59);
    let dead = stage.run(20.0, |_| {});
    assert!((7.5..=9.0).contains(&dead[&pool("v")].0), "{dead:?}");
}

#[test]
fn while_the_pods_are_not_known_a_missing_one_says_nothing() {
    let mut stage = Stage::new();
    stage.bound("w");
    let nothing = QueuePods::new(&[]);
    for second in 6..60 {
        stage.at(f64::from(second));
        let judgement = stage.judge.look(stage.instant(), Arc::new(stage.redis.clone()), &nothing);
        assert_eq!(named(&judgement, "w"), "PodsNotKnown");
    }
}

#[test]
fn looks_are_frequent_while_a_fate_is_open_or_a_container_starts() {
    let mut stage = Stage::new();
    assert_eq!(stage.look().next_look, EMPTY_LOOK);
    stage.apply(running("w", 0));
    assert_eq!(stage.look().next_look, OPEN_LOOK);
    assert_eq!(stage.at(20.0).look().next_look, EMPTY_LOOK);
    stage.beat("w", "w", 0);
    assert_eq!(stage.look().next_look, CALM_LOOK);
    stage.list(vec![]);
    stage.claim("here", "mail", &["w"]);
    assert_eq!(stage.look().next_look, OPEN_LOOK);
}

#[test]
fn pods_whose_pools_hold_jobs_are_busy() {
    let mut stage = Stage::new();
    let pod = stage.bound("w");
    assert!(stage.look().busy_pods.is_empty());
    stage.jobs("w", 2);
    assert_eq!(stage.look().busy_pods, [Arc::from("w")].into());
    stage.apply(ended(pod, 5));
    assert!(stage.react().busy_pods.is_empty());
}

#[test]
fn bindings_are_named_until_redis_has_them_and_stale_when_their_pool_is_nowhere() {
    let mut stage = Stage::new();
    stage.keep_bindings = false;
    stage.apply(running("w", -60));
    stage.beat("w", "w", -59);
    stage.look();
    stage.at(2.0).beat("w", "w", -59);
    assert_eq!(stage.look().new_bindings.len(), 1);
    let again = stage.at(4.0).look();
    assert_eq!(again.new_bindings.len(), 1);
    stage.redis.bindings.extend(again.new_bindings);
    assert!(stage.at(6.0).look().new_bindings.is_empty());
    stage.redis.pools.clear();
    assert_eq!(stage.at(8.0).look().stale_bindings, [pool("w")].into());
    stage.redis.bindings.get_mut(&pool("w")).unwrap().candidates[0].cluster = "there".into();
    assert!(stage.at(9.0).look().stale_bindings.is_empty(), "another cluster's are spared");
}
