//! Host names that several processes have, and how bindings are made and narrowed.

use super::named;
use super::stage::{Stage, end, ended, every_five, pool, running};
use crate::protocol::{EpochSeconds, PoolSeen};
use crate::reaper::host::HostKey;
use crate::reaper::pods::WorkerPod;
use crate::reaper::pods::index::PodEvent;
use crate::reaper::verdict::Decider;

fn sharing(names: &[&str]) -> Vec<WorkerPod> {
    let shared = |name: &&str| {
        let mut pod = running(name, -60);
        pod.hosts = [HostKey::of("worker")].into();
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

/// The queue `mail` bound pool `w` to its pod, froze, and the operator of the queue `other` looks.
fn seen_by_another_queue(pods: Vec<WorkerPod>) -> Stage {
    let mut stage = Stage::new();
    stage.bound("w");
    stage.claim("here", "mail", &["w"]);
    stage.claim("here", "other", &[]);
    stage.judge_for("other", pods);
    stage
}

#[test]
fn a_frozen_worker_of_another_queue_of_the_namespace_is_that_queue_s_to_judge() {
    for pods in [vec![], vec![running("v", -60)]] {
        let mut stage = seen_by_another_queue(pods);
        let dead = stage.run(120.0, |_| {});
        assert!(dead.is_empty(), "{dead:?}");
        assert_eq!(named(&stage.look(), "w"), "living");
        // Not even when somebody deletes its heartbeat.
        stage.redis.pools.insert(pool("w"), PoolSeen::default());
        stage.jobs("w", 1);
        stage.judge_for("other", vec![]);
        assert!(stage.run(300.0, |_| {}).is_empty());
    }
}

#[test]
fn a_binding_from_before_queues_signed_theirs_is_of_the_queue_that_claims_the_host() {
    let mut stage = seen_by_another_queue(vec![]);
    stage.redis.bindings.get_mut(&pool("w")).unwrap().made_by = None;
    let dead = stage.run(120.0, |_| {});
    assert!(dead.is_empty(), "{dead:?}");
}

#[test]
fn what_a_queue_bound_that_is_there_no_more_is_an_outsider() {
    for lapsed in [false, true] {
        let mut stage = seen_by_another_queue(vec![]);
        if lapsed {
            let old = EpochSeconds(stage.redis.redis_time.0 - 90_000);
            let claim = &mut stage.redis.claims[0];
            claim.written_at = old;
            claim.hosts.values_mut().for_each(|there| *there = old);
        } else {
            stage.redis.claims.remove(0);
        }
        let dead = stage.run(120.0, |_| {});
        assert_eq!(dead[&pool("w")].1.name(), "OutsiderSilent", "lapsed {lapsed}");
    }
}

#[test]
fn our_own_pod_that_is_gone_is_still_ours_after_a_restart() {
    for neighbour_has_it_too in [false, true] {
        let mut stage = Stage::new();
        stage.bound("w");
        stage.claim("here", "mail", &["w"]);
        stage.claim("here", "other", if neighbour_has_it_too { &["w"] } else { &[] });
        stage.restart_operator(vec![]);
        let dead = stage.run(60.0, |_| {});
        assert_eq!(dead[&pool("w")].1.name(), "Silent", "{neighbour_has_it_too}");
    }
}

#[test]
fn a_workload_that_was_handed_over_is_judged_by_the_queue_that_has_it_now() {
    let mut stage = Stage::new();
    let pod = stage.bound("w");
    stage.claim("here", "mail", &["w"]);
    stage.claim("here", "other", &["w"]);
    stage.redis.claims[0].hosts.values_mut().for_each(|there| there.0 -= 300);
    stage.restart_operator(vec![]);
    assert!(stage.run(100.0, |_| {}).is_empty());
    stage.judge_for("other", vec![pod.clone()]);
    assert!(stage.run(200.0, |_| {}).is_empty());
    assert_eq!(named(&stage.look(), "w"), "SilentThoughRunning");
    stage.apply(ended(pod, 200));
    assert_eq!(named(&stage.react(), "w"), "ContainerEnded");
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
fn a_binding_waits_for_a_beat_and_for_a_container_that_can_have_started_no_later() {
    let mut stage = Stage::new();
    stage.apply(running("w", -60));
    stage.beat("w", "w", -59);
    stage.beat("x", "w", -63);
    stage.look();
    assert!(stage.redis.bindings.is_empty(), "not seen to move yet");
    stage.run(11.0, |stage| {
        if every_five(stage) {
            stage.beat("w", "w", -59);
            stage.beat("x", "w", -63);
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
    pod.containers[1].current.as_mut().unwrap().end = Some(end(Some(11)));
    stage.apply(pod);
    assert!(stage.run(60.0, beat).is_empty());
}
