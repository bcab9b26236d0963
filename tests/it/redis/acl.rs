//! Everything works with exactly the rights that are documented (C65).

use std::collections::BTreeMap;

use poolkeeper::protocol::EpochSeconds;
use poolkeeper::protocol::gocraft_work::acl::{operator_rules, worker_rules};
use poolkeeper::protocol::gocraft_work::backlog::parse_backlog;
use poolkeeper::protocol::gocraft_work::cap::{Desired, PutBack, PutBackOf};
use poolkeeper::protocol::gocraft_work::claim::Claiming;
use poolkeeper::protocol::gocraft_work::{FenceOp, GocraftWork, Observer, ScriptError, Sweep};
use poolkeeper::reaper::binding::Binding;
use poolkeeper::reaper::settle::reap;
use poolkeeper::redis::{Client, Reason, Secret};

use super::fixture::{Fixture, dead, job_type};
use crate::support::redis::{eventually, run};

async fn restricted(fixture: &mut Fixture, more: &[&str]) -> GocraftWork {
    let mut command: Vec<String> = ["ACL", "SETUSER", "keeper", "reset", "on", ">p@ss:w/rd#1%"].map(Into::into).into();
    command.extend(operator_rules(fixture.work.keys()));
    command.extend(more.iter().map(ToString::to_string));
    run::<(), _>(&mut fixture.redis, command).await;
    let endpoint = fixture.server.endpoint().with_username("keeper").with_password(Secret::new("p@ss:w/rd#1%"));
    GocraftWork::new(Client::new(endpoint), fixture.work.keys().clone(), fixture.work.speaker().clone())
}

async fn everything(work: &GocraftWork, fixture: &mut Fixture) {
    fixture.beat("D", 1, "a").await;
    fixture.beat("L", 1, "a").await;
    fixture.running("a", "D", &["1"]).await;
    fixture.locks("a", 3, &[("D", 1), ("L", 2)]).await;
    work.fence(FenceOp::Advance).await.unwrap();
    Sweep::default().step(work).await.unwrap();
    for number in 0..300 {
        fixture.line::<()>(&format!("ZADD work:scheduled {number} {number}")).await;
    }
    let mut observer = Observer::default();
    observer.count_due(true);
    let observation = observer.observe(work).await.unwrap();
    assert!(!observation.due_incomplete, "the pages were read");
    let pools = dead(&["D"]);
    assert!(reap(work, &observation, &pools, &BTreeMap::default()).await.unwrap().is_complete());
    fixture.beat("D", 2, "a").await;
    assert_eq!(work.unreap(&[("D".into(), serde_json::Value::Null)]).await.unwrap().len(), 1);
    work.bind(&[("L".into(), Binding { candidates: [].into(), made_by: None, started_at: None })], &["X".into()])
        .await
        .unwrap();
    let put_back = PutBack { job_type: job_type("a"), what: PutBackOf::Cap, old: "0".into(), cap: 1 };
    work.record_overwrites(&[put_back]).await.unwrap();
    work.read_record("", 10).await.unwrap();
    let claiming = Claiming {
        cluster: "home".into(),
        namespace: "default".into(),
        name: "mail".into(),
        created_at: EpochSeconds(1),
        job_types: [job_type("a")].into(),
        concurrency: 1,
        hosts: ["h".to_owned()].into(),
    };
    work.claim(&claiming).await.unwrap();
    let desired = [Desired { job_type: job_type("a"), cap: Some(5), paused: Some(true) }];
    let tracker = work.client().tracker();
    let mut watching = tracker.watch(work.hold_caps(&desired, false, std::time::Duration::from_secs(60)));
    work.parse_held(watching.next().await.unwrap()).unwrap();
    assert!(watching.tracking_active());
    let mut backlog = tracker.watch(work.watch_backlog(&[job_type("a")], std::time::Duration::from_secs(60)));
    assert!(parse_backlog(backlog.next().await.unwrap()).unwrap().waiting);
    work.release(&claiming.field(), &desired).await.unwrap();
}

#[tokio::test]
async fn the_documented_rights_are_enough() {
    let mut fixture = Fixture::new().await;
    let work = restricted(&mut fixture, &[]).await;
    everything(&work, &mut fixture).await;
}

#[tokio::test]
async fn a_missing_right_is_named_and_the_connection_kept() {
    let mut fixture = Fixture::new().await;
    let work = restricted(&mut fixture, &["-scan"]).await;
    let failure = Sweep::default().step(&work).await.unwrap_err();
    assert_eq!(failure.reason, Reason::NoPermission);
    assert!(failure.message.contains("scan"), "{failure}");
    let work = restricted(&mut fixture, &["-lmove"]).await;
    fixture.running("a", "D", &["1"]).await;
    fixture.locks("a", 1, &[("D", 1)]).await;
    let error = work.settle(&job_type("a"), &dead(&["D"]), &[], 500).await.unwrap_err();
    assert!(matches!(&error, ScriptError::Failed(failure) if failure.reason == Reason::NoPermission), "{error}");
}

/// Where tracking is refused, caps are held by polling.
#[tokio::test]
async fn without_tracking_caps_are_held_by_polling() {
    let mut fixture = Fixture::new().await;
    let work = restricted(&mut fixture, &["-client"]).await;
    work.fence(FenceOp::Advance).await.unwrap();
    let desired = [Desired { job_type: job_type("a"), cap: Some(5), paused: None }];
    let watch = work.hold_caps(&desired, false, std::time::Duration::from_secs(60));
    let mut watching = work.client().tracker().watch(watch);
    watching.next().await.unwrap();
    assert!(!watching.tracking_active());
    fixture.line::<()>("SET work:jobs:a:max_concurrency 0").await;
    let redis = fixture.redis.clone();
    eventually("the cap is put back", async || {
        crate::support::redis::line::<i64>(&mut redis.clone(), "GET work:jobs:a:max_concurrency").await == 5
    })
    .await;
}

/// The library's own fetch still works for a worker that may not write caps.
#[tokio::test]
async fn workers_with_the_documented_rules_cannot_overwrite_a_cap() {
    let mut fixture = Fixture::new().await;
    let mut command: Vec<String> = ["ACL", "SETUSER", "worker", "reset", "on", ">pw"].map(Into::into).into();
    command.extend(worker_rules(fixture.work.keys()));
    run::<(), _>(&mut fixture.redis, command).await;
    let mut worker = fixture.server.connection().await;
    run::<(), _>(&mut worker, ["AUTH", "worker", "pw"]).await;
    let mut set = redis::cmd("SET");
    set.arg("work:jobs:a:max_concurrency").arg(0);
    assert!(set.query_async::<()>(&mut worker).await.is_err());
    for key in ["work:jobs:a:lock", "work:last_periodic_enqueue", "work:unique:a:x"] {
        run::<(), _>(&mut worker, ["SET", key, "0"]).await;
    }
    let fetch =
        "redis.call('get', KEYS[2]) redis.call('incr', KEYS[3]) return redis.call('rpoplpush', KEYS[1], KEYS[4])";
    fixture.line::<()>("LPUSH work:jobs:a x").await;
    let keys = ["work:jobs:a", "work:jobs:a:max_concurrency", "work:jobs:a:lock", "work:jobs:a:P:inprogress"];
    let mut words = vec!["EVAL", fetch, "4"];
    words.extend(keys);
    assert_eq!(run::<String, _>(&mut worker, words).await, "x");
}
