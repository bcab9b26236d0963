use std::time::Instant;

use super::*;
use crate::protocol::{EpochSeconds, Heartbeat, PoolSeen};
use crate::reaper::container::{ContainerStatus, Report};
use crate::reaper::pods::{Controller, WorkerPod};
use crate::reaper::verdict::Proof;

fn pod(name: &str, change: impl FnOnce(&mut WorkerPod)) -> Arc<PodRecord> {
    let running = ContainerStatus {
        name: "worker".into(),
        current: Some(Report { id: format!("c-{name}").as_str().into(), started_at: Some(EpochSeconds(1)), end: None }),
        last: None,
        restart_count: 0,
    };
    let owner =
        Controller { api_version: "apps/v1".into(), kind: "ReplicaSet".into(), name: "w-1".into(), uid: "rs-1".into() };
    let mut pod = WorkerPod {
        uid: format!("uid-{name}").as_str().into(),
        namespace: "shop".into(),
        name: name.into(),
        hosts: Box::new([]),
        phase: "Running".into(),
        reason: None,
        deleting: false,
        ready: true,
        deletion_cost: None,
        labels: Arc::default(),
        owner: Some(owner),
        containers: Box::new([running]),
    };
    change(&mut pod);
    Arc::new(PodRecord::new(Arc::new(pod), Instant::now()))
}

/// One job type `mail` of which these pools run so many jobs; those with a concurrency beat.
fn observation(pools: &[(&str, u64, Option<u32>)]) -> Observation {
    let mut seen = JobTypeSeen { waiting: 5, cap: Some(0), ..JobTypeSeen::default() };
    let mut observation = Observation { redis_time: EpochSeconds(100), ..Observation::default() };
    for (pool, jobs, concurrency) in pools {
        seen.in_progress.insert((*pool).into(), *jobs);
        let heartbeat = concurrency.map(|concurrency| {
            Box::new(Heartbeat {
                heartbeat_at: EpochSeconds(99),
                started_at: EpochSeconds(1),
                job_names: vec!["mail".into()],
                concurrency,
                host: "h".into(),
                pid: "1".into(),
            })
        });
        observation.pools.insert((*pool).into(), PoolSeen { heartbeat, listed: true });
    }
    observation.job_types.insert("mail".into(), seen.into());
    observation
}

fn judgement(places: &[(&str, &[&str])], dead: &[&str]) -> Judgement {
    let mut judgement = Judgement::default();
    for (pool, pods) in places {
        judgement.pods_of.insert((*pool).into(), pods.iter().map(|pod| (*pod).into()).collect());
    }
    for pool in dead {
        let proof = Proof::UnknownPool { known_for: Duration::from_secs(60), listed: true };
        judgement.dead.insert((*pool).into(), proof);
    }
    judgement
}

fn mail(attribution: &Attribution<'_>) -> JobTypeFacts {
    attribution.job_types(&[JobTypeName::from("mail")].into()).remove(0)
}

#[test]
fn only_jobs_that_keep_replicas_count_as_running() {
    let stays = pod("stays", |_| {});
    let goes = pod("goes", |pod| pod.deleting = true);
    let pods = QueuePods::of([stays, goes], &[]);
    for (what, pool, place, dead, counts) in [
        ("in a pod that stays", ("A", 2, Some(4)), &["stays"][..], false, 2),
        ("in a pod that is terminating", ("A", 2, Some(4)), &["goes"], false, 0),
        ("in one of both", ("A", 2, Some(4)), &["stays", "goes"], false, 2),
        ("elsewhere", ("A", 2, Some(4)), &[], false, 0),
        ("nobody knows where: it took jobs before its first beat", ("A", 2, None), &[], false, 2),
        ("found dead", ("A", 2, Some(4)), &["stays"], true, 0),
    ] {
        let observation = observation(&[pool]);
        let places: &[(&str, &[&str])] = if place.is_empty() { &[] } else { &[("A", place)] };
        let judgement = judgement(places, if dead { &["A"] } else { &[] });
        let facts = mail(&Attribution::new(&observation, &judgement, &pods));
        assert_eq!((facts.running, facts.waiting, facts.cap), (counts, 5, None), "{what}");
    }
}

#[test]
fn a_pod_without_a_pool_may_run_what_nobody_can_place() {
    let pods = QueuePods::of([pod("known", |_| {}), pod("new", |_| {})], &[]);
    let judgement = judgement(&[("A", &["known"])], &[]);
    for (unplaced, unsure) in [(0, false), (1, true)] {
        let observation = observation(&[("A", 3, Some(4)), ("B", unplaced, None)]);
        let facts = Attribution::new(&observation, &judgement, &pods).pods(&pods);
        let of = |name: &str| facts.iter().find(|pod| &*pod.name == name).unwrap();
        assert_eq!((of("known").running, of("known").unsure), (3, false));
        assert_eq!((of("new").running, of("new").unsure), (0, unsure));
    }
}

#[test]
fn how_far_a_pod_is() {
    for (what, change, expected) in [
        ("ready", (|_| {}) as fn(&mut WorkerPod), PodPhase::Ready),
        ("not ready", |pod| pod.ready = false, PodPhase::NotReady),
        ("pending", |pod| (pod.ready, pod.phase) = (false, "Pending".into()), PodPhase::Pending),
        ("terminating", |pod| pod.deleting = true, PodPhase::Terminating),
    ] {
        let (pods, nothing) = (QueuePods::of([pod("p", change)], &[]), observation(&[]));
        let facts = Attribution::new(&nothing, &Judgement::default(), &pods).pods(&pods);
        assert_eq!(facts[0].phase, expected, "{what}");
    }
    let (pods, nothing) = (QueuePods::of([pod("p", |pod| pod.phase = "Failed".into())], &[]), observation(&[]));
    assert!(
        Attribution::new(&nothing, &Judgement::default(), &pods).pods(&pods).is_empty(),
        "one that is over is none"
    );
}

#[test]
fn a_pod_runs_as_many_jobs_as_its_pools_together() {
    let pods = QueuePods::none();
    for (what, pools, places, expected) in [
        ("no beat yet", vec![("A", 0, None)], vec![("A", &["p"][..])], None),
        ("one pool", vec![("A", 0, Some(4))], vec![("A", &["p"])], Some(4)),
        ("two in a pod", vec![("A", 0, Some(4)), ("B", 0, Some(6))], vec![("A", &["p"]), ("B", &["p"])], Some(10)),
        ("pods differ", vec![("A", 0, Some(4)), ("B", 0, Some(6))], vec![("A", &["p"]), ("B", &["q"])], Some(6)),
        ("elsewhere", vec![("A", 0, Some(4))], vec![], None),
    ] {
        let (observation, judgement) = (observation(&pools), judgement(&places, &[]));
        assert_eq!(Attribution::new(&observation, &judgement, &pods).concurrency(), expected, "{what}");
    }
}

#[test]
fn what_could_not_be_read_is_one_more_type() {
    let (pods, judgement) = (QueuePods::none(), Judgement::default());
    let names = [JobTypeName::from("mail")].into();
    let mut seen = observation(&[]);
    assert_eq!(Attribution::new(&seen, &judgement, &pods).job_types(&names).len(), 1);
    seen.due_incomplete = true;
    let facts = Attribution::new(&seen, &judgement, &pods).job_types(&names);
    assert!(facts.len() == 2 && facts[1].unread == Some(Unread::DueEntries) && facts[0].unread.is_none());
    seen.spoiled_sets = vec!["work:retry".into()];
    let facts = Attribution::new(&seen, &judgement, &pods).job_types(&names);
    assert_eq!((facts[1].name.as_str(), facts[1].unread), ("work:retry", Some(Unread::Set)));
}

#[test]
fn the_oldest_wait_is_of_lists_and_of_what_is_due() {
    let observation = observation(&[]);
    let seen = |enqueued: Option<i64>, due: Option<i64>| JobTypeSeen {
        oldest_enqueued_at: enqueued.map(EpochSeconds),
        oldest_due_at: due.map(EpochSeconds),
        ..JobTypeSeen::default()
    };
    for (enqueued, due, wait) in
        [(None, None, None), (Some(90), None, Some(10)), (Some(90), Some(40), Some(60)), (Some(140), None, Some(0))]
    {
        assert_eq!(oldest_wait(&seen(enqueued, due), &observation), wait, "{enqueued:?} {due:?}");
    }
}

#[test]
fn caps_that_are_held_count_before_redis_has_them() {
    let (pods, judgement, seen) = (QueuePods::none(), Judgement::default(), observation(&[]));
    let names = [JobTypeName::from("mail")].into();
    for (cap, paused, expected) in
        [(None, None, (None, false)), (Some(10), None, (Some(10), false)), (Some(0), Some(true), (None, true))]
    {
        let mut facts = Attribution::new(&seen, &judgement, &pods).job_types(&names);
        let of = |name: &str| Desired { job_type: name.into(), cap, paused };
        holding(&mut facts, &[of("other"), of("mail")]);
        assert_eq!((facts[0].cap, facts[0].paused), expected);
    }
}

#[test]
fn a_pool_that_can_not_be_bound_is_in_the_pod_that_has_its_host_name() {
    let pods = QueuePods::of([pod("p", |pod| pod.hosts = Box::new([HostKey::of("h")])), pod("idle", |_| {})], &[]);
    let (observation, unbound) = (observation(&[("A", 2, Some(4))]), Judgement::default());
    let attribution = Attribution::new(&observation, &unbound, &pods);
    assert_eq!(mail(&attribution).running, 2);
    let busy: Vec<_> = attribution.pods(&pods).into_iter().filter(|pod| pod.running > 0).collect();
    assert_eq!(busy.iter().map(|pod| &*pod.name).collect::<Vec<_>>(), ["p"]);
    assert_eq!(attribution.concurrency(), Some(4));
}

#[test]
fn each_key_of_a_wrong_type_is_named_with_the_type_that_it_should_have() {
    let names = [JobTypeName::from("mail")].into();
    let mut seen = observation(&[]);
    assert_eq!(unread(&seen, &names), None);
    seen.spoiled_sets = vec!["work:retry".into()];
    let message = |seen: &Observation| unread(seen, &names).unwrap().message;
    assert!(message(&seen).contains(r#"key "work:retry" in Redis should be a sorted set: delete it"#));
    seen.spoiled_sets.clear();
    for name in ["mail", "others"] {
        seen.job_types.entry(name.into()).or_default().spoiled = Some(format!("work:jobs:{name}"));
    }
    assert!(message(&seen).contains(r#"key "work:jobs:mail" in Redis should be a list: delete it"#));
    assert!(!message(&seen).contains("others"), "another queue's");
}
