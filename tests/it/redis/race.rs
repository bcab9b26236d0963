//! Two reapers at once, and a reader that looks as fast as it can. C01 and C03 at the level of scripts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use poolkeeper::reaper::settle::reap;

use super::fixture::{Fixture, dead, unknown};
use crate::support::redis::line;

/// C03.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_reapers_free_a_pool_once_and_the_lock_never_dips() {
    let mut fixture = Fixture::new().await;
    fixture.beat("D", 1_000, "email").await;
    fixture.beat("L", 2_000, "email").await;
    fixture.locks("email", 3, &[("D", 1), ("L", 2)]).await;
    fixture.running("email", "D", &["d1", "d2", "d3"]).await;
    fixture.running("email", "L", &["l1", "l2"]).await;
    let observation = fixture.observe().await;

    let stop = Arc::new(AtomicBool::new(false));
    let lowest = Arc::new(AtomicI64::new(i64::MAX));
    let mut poller = fixture.server.connection().await;
    let (polling, seen) = (stop.clone(), lowest.clone());
    let poll = tokio::spawn(async move {
        while !polling.load(Ordering::Relaxed) {
            let lock: i64 = line(&mut poller, "GET work:jobs:email:lock").await;
            seen.fetch_min(lock, Ordering::Relaxed);
        }
    });
    let other = poolkeeper::protocol::gocraft_work::GocraftWork::new(
        fixture.server.client(),
        fixture.work.keys().clone(),
        fixture.work.speaker().clone(),
    );
    let (pools, none) = (dead(&["D"]), BTreeMap::new());
    let (one, two) =
        tokio::join!(reap(&fixture.work, &observation, &pools, &none), reap(&other, &observation, &pools, &none));
    stop.store(true, Ordering::Relaxed);
    poll.await.unwrap();

    let reaped = [one.unwrap(), two.unwrap()].map(|reaped| reaped.pools["D"].clone());
    assert_eq!(reaped.iter().map(|pool| pool.jobs).sum::<u64>(), 3);
    assert!(reaped.iter().all(|pool| pool.forgotten));
    assert_eq!(reaped.iter().filter(|pool| pool.forgotten_by_us).count(), 1, "counted once");
    assert_eq!(fixture.list("work:jobs:email").await, ["d3", "d2", "d1"]);
    assert_eq!(fixture.lock("email").await, Some(2));
    assert_eq!(fixture.info("email").await, [("L".to_owned(), 2)].into());
    assert!(lowest.load(Ordering::Relaxed) >= 2);
    let pools: Vec<String> = fixture.line("SMEMBERS work:worker_pools").await;
    assert_eq!(pools, ["L"]);
}

/// C01.
#[tokio::test]
async fn a_pool_that_nobody_remembers_is_settled_and_one_that_appears_is_spared() {
    for appears in [false, true] {
        let mut fixture = Fixture::new().await;
        fixture.line::<()>("SADD work:known_jobs replicate").await;
        fixture.line::<()>("LPUSH work:jobs:replicate r3").await;
        fixture.running("replicate", "D", &["r1", "r2"]).await;
        fixture.locks("replicate", 2, &[("D", 2)]).await;
        let observation = fixture.observe().await;
        assert!(observation.pools["D"].heartbeat.is_none());
        if appears {
            fixture.beat("D", 5_000, "replicate").await;
        }
        let reaped = reap(&fixture.work, &observation, &[unknown("D")], &BTreeMap::default()).await.unwrap();
        assert_eq!(reaped.is_complete(), !appears);
        assert_eq!(reaped.look_again.is_empty(), !appears);
        let (waiting, lock) = if appears { (1, 2) } else { (3, 0) };
        assert_eq!(fixture.list("work:jobs:replicate").await.len(), waiting);
        assert_eq!(fixture.lock("replicate").await, Some(lock));
    }
}

/// A pool may take another job between the look and the reaping, of any type that its heartbeat names.
#[tokio::test]
async fn what_a_dead_pool_took_after_the_look_is_given_back_too() {
    let mut fixture = Fixture::new().await;
    fixture.beat("D", 1_000, "a,b").await;
    fixture.beat("L", 1_000, "a,b,c").await;
    fixture.locks("a", 1, &[("D", 1)]).await;
    fixture.running("a", "D", &["a1"]).await;
    let observation = fixture.observe().await;
    fixture.locks("b", 2, &[("D", 1), ("L", 1)]).await;
    fixture.running("b", "D", &["b1"]).await;
    fixture.running("b", "L", &["b2"]).await;
    let reaped = reap(&fixture.work, &observation, &dead(&["D"]), &BTreeMap::default()).await.unwrap();
    assert!(reaped.is_complete(), "{reaped:?}");
    let pool = &reaped.pools["D"];
    assert_eq!((pool.jobs, pool.locks), (2, 2));
    assert_eq!(fixture.list("work:jobs:b").await, ["b1"]);
    assert_eq!(fixture.lock("b").await, Some(1));
    let pools: Vec<String> = fixture.line("SMEMBERS work:worker_pools").await;
    assert_eq!(pools, ["L"]);
}

/// What a reaped process writes late is settled like anything else.
#[tokio::test]
async fn a_late_finish_of_a_reaped_pool_is_settled() {
    let mut fixture = Fixture::new().await;
    fixture.beat("D", 1_000, "a").await;
    fixture.line::<()>("SADD work:known_jobs a").await;
    fixture.locks("a", 1, &[("D", 1)]).await;
    fixture.running("a", "D", &["d1"]).await;
    let observation = fixture.observe().await;
    let none = BTreeMap::default();
    assert!(reap(&fixture.work, &observation, &dead(&["D"]), &none).await.unwrap().is_complete());
    fixture.line::<()>("DECR work:jobs:a:lock").await;
    fixture.line::<()>("HINCRBY work:jobs:a:lock_info D -1").await;
    let observation = fixture.observe().await;
    assert!(observation.reaped.contains_key("D"));
    assert!(reap(&fixture.work, &observation, &dead(&["D"]), &none).await.unwrap().is_complete());
    assert_eq!(fixture.lock("a").await, Some(0));
    assert!(fixture.info("a").await.is_empty());
}
