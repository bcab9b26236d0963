//! `hold_caps.lua` on the watching connection: caps are put back within milliseconds.

use std::time::{Duration, Instant};

use poolkeeper::protocol::gocraft_work::cap::{Desired, Held, PutBack, PutBackOf};
use poolkeeper::protocol::gocraft_work::record::Deed;
use poolkeeper::protocol::gocraft_work::{FenceOp, Fenced};
use poolkeeper::redis::tracking::Watching;
use poolkeeper::redis::{Endpoint, Failure};

use super::fixture::{Fixture, job_type, speaker};
use crate::support::proxy::Proxy;
use crate::support::redis::{PATIENCE, eventually, run};

const RESYNC: Duration = Duration::from_secs(300);

fn capped(name: &str, cap: i64) -> Desired {
    Desired { job_type: job_type(name), cap: Some(cap), paused: None }
}

async fn next(fixture: &Fixture, watching: &mut Watching) -> Result<Held, Failure> {
    let value = tokio::time::timeout(PATIENCE, watching.next()).await.expect("a run within the bound")?;
    fixture.work.parse_held(value)
}

async fn held(fixture: &Fixture, watching: &mut Watching) -> Held {
    loop {
        if let Ok(held) = next(fixture, watching).await {
            return held;
        }
    }
}

async fn holding(desired: &[Desired]) -> (Fixture, Watching) {
    let fixture = Fixture::new().await;
    fixture.work.fence(FenceOp::Advance).await.unwrap();
    let watching = fixture.work.client().tracker().watch(fixture.work.hold_caps(desired, false, RESYNC));
    (fixture, watching)
}

/// C09.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overwritten_cap_is_back_at_once() {
    let (mut fixture, mut watching) = holding(&[capped("report", 5), capped("other", 0)]).await;
    let first = held(&fixture, &mut watching).await;
    assert!(watching.tracking_active());
    assert_eq!(first.job_types[&job_type("report")].cap, Some(5));
    assert_eq!(first.job_types[&job_type("report")].cap_written.as_ref().unwrap().old, None);
    assert_eq!(first.job_types[&job_type("other")].cap, Some(0));

    let mut took = Vec::new();
    for overwritten in 0..15 {
        let began = Instant::now();
        fixture.line::<()>("SET work:jobs:report:max_concurrency 0").await;
        while fixture.line::<i64>("GET work:jobs:report:max_concurrency").await != 5 {
            assert!(began.elapsed() < PATIENCE, "not put back");
        }
        took.push(began.elapsed());
        let run = held(&fixture, &mut watching).await;
        let written = run.job_types[&job_type("report")].cap_written.clone();
        assert_eq!(written.and_then(|written| written.old).as_deref(), Some("0"), "put-back {overwritten}");
    }
    took.sort();
    println!("put back after {:?} at the median, {:?} at most", took[took.len() / 2], took[took.len() - 1]);
}

#[tokio::test]
async fn everything_is_put_back_after_flushall() {
    let (mut fixture, mut watching) = holding(&[capped("report", 5)]).await;
    held(&fixture, &mut watching).await;
    fixture.line::<()>("FLUSHALL").await;
    // The fence is gone too: the run says so, and its caller advances it.
    assert_eq!(held(&fixture, &mut watching).await.fenced, Some(Fenced::Unfenced));
    fixture.work.fence(FenceOp::Advance).await.unwrap();
    assert_eq!(held(&fixture, &mut watching).await.job_types[&job_type("report")].cap, Some(5));
}

#[tokio::test]
async fn a_killed_connection_and_flushed_scripts_are_survived() {
    let (mut fixture, mut watching) = holding(&[capped("report", 5)]).await;
    held(&fixture, &mut watching).await;
    fixture.line::<()>("SCRIPT FLUSH").await;
    fixture.line::<()>("SET work:jobs:report:max_concurrency 1").await;
    assert!(held(&fixture, &mut watching).await.job_types[&job_type("report")].cap_written.is_some());
    fixture.line::<()>("CLIENT KILL TYPE NORMAL SKIPME YES").await;
    fixture.line::<()>("SET work:jobs:report:max_concurrency 0").await;
    assert!(next(&fixture, &mut watching).await.is_err());
    assert_eq!(held(&fixture, &mut watching).await.job_types[&job_type("report")].cap, Some(5));
    fixture.line::<()>("SET work:jobs:report:max_concurrency 0").await;
    assert!(held(&fixture, &mut watching).await.job_types[&job_type("report")].cap_written.is_some());
}

/// A script of somebody else blocks the server for a moment, while a watch runs and while one connects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_moment_does_not_turn_tracking_off() {
    let (mut fixture, mut watching) = holding(&[capped("report", 5)]).await;
    fixture.line::<()>("CONFIG SET busy-reply-threshold 200").await;
    held(&fixture, &mut watching).await;
    for connected in [true, false] {
        let mut other = fixture.server.connection().await;
        let endless = tokio::spawn(async move {
            let _: Result<(), _> = redis::cmd("EVAL").arg("while true do end").arg(0).query_async(&mut other).await;
        });
        let mut asking = fixture.redis.clone();
        eventually("the server is busy", async || {
            let answer: Result<String, _> = redis::cmd("PING").query_async(&mut asking.clone()).await;
            answer.is_err_and(|error| error.code() == Some("BUSY"))
        })
        .await;
        if connected {
            let (keys, args) = fixture.work.hold_caps_input(&[capped("report", 5)], false);
            watching.replace(keys, args);
            assert!(next(&fixture, &mut watching).await.is_err());
        } else {
            let second = poolkeeper::redis::Client::new(fixture.work.client().endpoint().clone());
            watching = second.tracker().watch(fixture.work.hold_caps(&[capped("report", 5)], false, RESYNC));
            assert!(next(&fixture, &mut watching).await.is_err());
        }
        redis::cmd("SCRIPT").arg("KILL").query_async::<()>(&mut asking).await.unwrap();
        endless.await.unwrap();
        held(&fixture, &mut watching).await;
        assert!(watching.tracking_active(), "connected before: {connected}");
        let began = Instant::now();
        fixture.line::<()>("SET work:jobs:report:max_concurrency 0").await;
        while fixture.line::<i64>("GET work:jobs:report:max_concurrency").await != 5 {
            assert!(began.elapsed() < Duration::from_millis(900), "not put back at once");
        }
        held(&fixture, &mut watching).await;
    }
}

#[tokio::test]
async fn a_half_open_connection_is_found_out() {
    let mut fixture = Fixture::new().await;
    let proxy = Proxy::to(([127, 0, 0, 1], fixture.server.port).into()).await;
    let endpoint = Endpoint::parse(&format!("redis://{}", proxy.address)).unwrap();
    let client = poolkeeper::redis::Client::new(endpoint);
    fixture.work.fence(FenceOp::Advance).await.unwrap();
    let mut watching = client.tracker().watch(fixture.work.hold_caps(&[capped("report", 5)], false, RESYNC));
    held(&fixture, &mut watching).await;
    proxy.stall();
    fixture.line::<()>("SET work:jobs:report:max_concurrency 0").await;
    assert!(next(&fixture, &mut watching).await.is_err());
    assert!(!watching.tracking_active());
    proxy.pass();
    assert_eq!(held(&fixture, &mut watching).await.job_types[&job_type("report")].cap, Some(5));
    assert_eq!(fixture.line::<i64>("GET work:jobs:report:max_concurrency").await, 5);
    proxy.cut();
    assert!(next(&fixture, &mut watching).await.is_err());
    held(&fixture, &mut watching).await;
}

#[tokio::test]
async fn only_what_is_given_is_held() {
    let mut fixture = Fixture::new().await;
    fixture.work.fence(FenceOp::Advance).await.unwrap();
    fixture.line::<()>("MSET work:jobs:a:max_concurrency 9 work:jobs:b:paused 1").await;
    let desired = [
        Desired { job_type: job_type("a"), cap: None, paused: Some(true) },
        Desired { job_type: job_type("b"), cap: None, paused: None },
        Desired { job_type: job_type("c"), cap: Some(1), paused: Some(false) },
    ];
    run::<(), _>(&mut fixture.redis, ["SET", "work:jobs:c:paused", ""]).await;
    let watch = fixture.work.hold_caps(&desired, true, RESYNC);
    let before = fixture.dump().await;
    let mut watching = fixture.work.client().tracker().watch(watch);
    let seen = held(&fixture, &mut watching).await;
    assert_eq!(fixture.dump().await, before, "observing changes nothing");
    assert_eq!(seen.job_types[&job_type("a")].cap, Some(9));

    let (keys, args) = fixture.work.hold_caps_input(&desired, false);
    watching.replace(keys, args);
    let seen = held(&fixture, &mut watching).await;
    let paused: Vec<bool> = seen.job_types.values().map(|held| held.paused).collect();
    assert_eq!(paused, [true, true, false]);
    assert_eq!(fixture.line::<String>("GET work:jobs:a:paused").await, "poolkeeper");
    assert_eq!(fixture.line::<String>("GET work:jobs:b:paused").await, "1");
}

#[tokio::test]
async fn a_wrong_type_spoils_its_job_type_only_and_the_fence_refuses_all() {
    let (mut fixture, mut watching) = holding(&[capped("a", 5), capped("b", 6)]).await;
    held(&fixture, &mut watching).await;
    fixture.line::<()>("DEL work:jobs:a:max_concurrency").await;
    eventually("a is put back", async || fixture.redis.clone_line("EXISTS work:jobs:a:max_concurrency").await == 1)
        .await;
    let mut newer = fixture.work.clone();
    newer.set_speaker(speaker("u1", 2));
    newer.fence(FenceOp::Advance).await.unwrap();
    loop {
        if held(&fixture, &mut watching).await.fenced == Some(Fenced::Older) {
            break;
        }
    }
    fixture.line::<()>("SET work:jobs:b:max_concurrency 1").await;
    let seen = held(&fixture, &mut watching).await;
    assert_eq!((seen.fenced, seen.job_types[&job_type("b")].cap), (Some(Fenced::Older), Some(1)));
    fixture.line::<()>("DEL work:jobs:a:max_concurrency").await;
    fixture.line::<()>("LPUSH work:jobs:a:max_concurrency x").await;
    let (keys, args) = newer.hold_caps_input(&[capped("a", 5), capped("b", 6)], false);
    watching.replace(keys, args);
    loop {
        let seen = held(&fixture, &mut watching).await;
        if seen.fenced.is_none() {
            assert_eq!(seen.job_types[&job_type("a")].spoiled.as_deref(), Some("work:jobs:a:max_concurrency"));
            assert_eq!(seen.job_types[&job_type("b")].cap, Some(6));
            break;
        }
    }
}

#[tokio::test]
async fn works_when_redis_is_out_of_memory() {
    let (mut fixture, mut watching) = holding(&[capped("a", 5)]).await;
    held(&fixture, &mut watching).await;
    fixture.line::<()>("SET work:jobs:a:max_concurrency 0").await;
    held(&fixture, &mut watching).await;
    fixture.line::<()>("DEL work:jobs:a:max_concurrency").await;
    fixture.line::<()>("CONFIG SET maxmemory 1").await;
    eventually("a is put back", async || fixture.redis.clone_line("EXISTS work:jobs:a:max_concurrency").await == 1)
        .await;
    fixture.line::<()>("DEL work:jobs:a:max_concurrency").await;
    eventually("a is put back", async || fixture.redis.clone_line("EXISTS work:jobs:a:max_concurrency").await == 1)
        .await;
}

#[tokio::test]
async fn put_backs_are_recorded_with_what_ran_above() {
    let mut fixture = Fixture::new().await;
    fixture.line::<()>("SET work:jobs:a:lock 8").await;
    let put_back = |name: &str, what, old: &str, cap| PutBack { job_type: job_type(name), what, old: old.into(), cap };
    let deeds = [put_back("a", PutBackOf::Cap, "0", 5), put_back("b", PutBackOf::Pause, "1", 0)];
    assert_eq!(fixture.work.record_overwrites(&deeds).await.unwrap(), [3, 0]);
    let (entries, last) = fixture.work.read_record("", 10).await.unwrap();
    assert!(matches!(&entries[0].deed, Deed::CapOverwritten(one) if one.above == 3 && one.new == "5"), "{entries:?}");
    assert!(matches!(&entries[1].deed, Deed::PauseOverwritten(one) if one.job_type.as_str() == "b"), "{entries:?}");
    assert_eq!(entries[0].queue, "home/JobQueue/default/mail");
    assert!(fixture.work.read_record(&last, 10).await.unwrap().0.is_empty());
    let totals = fixture.observe().await.totals;
    assert_eq!((totals["caps_overwritten"], totals["ran_above_cap"]), (1, 3));
}

#[tokio::test]
async fn odd_values_in_redis_do_not_keep_a_put_back_from_being_recorded() {
    let mut fixture = Fixture::new().await;
    for lock in ["inf", "nan", "1e300", "-inf", "abc", "99999999999999999999"] {
        fixture.line::<()>(&format!("SET work:jobs:a:lock {lock}")).await;
        let old = "x".repeat(10_000);
        let deeds = [PutBack { job_type: job_type("a"), what: PutBackOf::Cap, old, cap: 5 }];
        assert_eq!(fixture.work.record_overwrites(&deeds).await.unwrap(), [0], "{lock}");
    }
    fixture.line::<()>("SET work:jobs:a:lock 7.5").await;
    let deeds = [PutBack { job_type: job_type("a"), what: PutBackOf::Cap, old: "0".into(), cap: 5 }];
    assert_eq!(fixture.work.record_overwrites(&deeds).await.unwrap(), [2]);
    let (entries, _) = fixture.work.read_record("", 10).await.unwrap();
    assert!(matches!(&entries[0].deed, Deed::CapOverwritten(one) if one.old.len() == 64), "{entries:?}");
}

trait CloneLine {
    async fn clone_line(&self, command: &str) -> i64;
}

impl CloneLine for redis::aio::MultiplexedConnection {
    async fn clone_line(&self, command: &str) -> i64 {
        crate::support::redis::line(&mut self.clone(), command).await
    }
}
