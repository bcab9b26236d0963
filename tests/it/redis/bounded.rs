//! Redis is never blocked for long: large lists go back in portions, and many deaths at once are all settled.

use std::collections::BTreeMap;

use poolkeeper::protocol::gocraft_work::settle::{DeadPool, ENTRIES_PER_RUN};
use poolkeeper::reaper::settle::reap;

use super::fixture::{Fixture, dead};

/// How many scripts ran since the counters were reset. (What they took is measured by `make bench`.)
async fn scripts(fixture: &mut Fixture) -> usize {
    let stats: String = fixture.line("INFO commandstats").await;
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).expect("scripts ran");
    calls.split(',').next().unwrap().parse().unwrap()
}

/// Reaps until nothing is left to do, as passes do: on a loaded machine an answer may come too late.
async fn reap_all(fixture: &Fixture, pools: &[DeadPool]) -> u64 {
    let mut jobs = 0;
    for _ in 0..20 {
        let observation = fixture.observe().await;
        let Ok(reaped) = reap(&fixture.work, &observation, pools, &BTreeMap::new()).await else { continue };
        jobs += reaped.pools.values().map(|pool| pool.jobs).sum::<u64>();
        if reaped.is_complete() {
            return jobs;
        }
    }
    panic!("twenty passes were not enough");
}

#[tokio::test]
async fn a_hundred_thousand_entries_go_back_in_portions() {
    let mut fixture = Fixture::new().await;
    fixture.beat("D", 1, "a").await;
    let fill = "for i = 1, 100000 do redis.call('LPUSH', KEYS[1], 'job' .. i) end";
    crate::support::redis::run::<(), _>(&mut fixture.redis, ["EVAL", fill, "1", "work:jobs:a:D:inprogress"]).await;
    fixture.locks("a", 100_000, &[("D", 100_000)]).await;
    fixture.line::<()>("CONFIG RESETSTAT").await;
    reap_all(&fixture, &dead(&["D"])).await;
    let portions = scripts(&mut fixture).await;
    assert!(
        portions >= 100_000 / ENTRIES_PER_RUN as usize,
        "{portions} scripts: more entries a run than Redis has time for"
    );
    assert_eq!(fixture.lock("a").await, Some(0));
    let list = fixture.list("work:jobs:a").await;
    assert_eq!((list.len(), list[0].as_str(), list[99_999].as_str()), (100_000, "job100000", "job1"));
}

#[tokio::test]
async fn a_death_costs_what_the_dead_held_and_not_what_is_known() {
    let mut fixture = Fixture::new().await;
    let known: Vec<String> = (0..50).map(|number| format!("type{number}")).collect();
    for pool in ["D", "E", "L"] {
        fixture.beat(pool, 1, &known.join(",")).await;
    }
    fixture.running("type7", "D", &["job"]).await;
    fixture.locks("type7", 1, &[("D", 1)]).await;
    let observation = fixture.observe().await;
    assert_eq!(observation.job_types.len(), 50);
    // Loads the scripts, and moves the fence.
    reap(&fixture.work, &observation, &[], &BTreeMap::new()).await.unwrap();
    fixture.work.forget(&dead(&["X"]), &[]).await.unwrap();
    fixture.line::<()>("CONFIG RESETSTAT").await;
    let reaped = reap(&fixture.work, &observation, &dead(&["D", "E"]), &BTreeMap::new()).await.unwrap();
    assert!(reaped.is_complete(), "{reaped:?}");
    assert_eq!(scripts(&mut fixture).await, 2, "one to settle, one to forget");
    assert_eq!(fixture.list("work:jobs:type7").await, ["job"]);
}

#[tokio::test]
async fn one_pool_and_then_a_thousand_of_ten_types() {
    let mut fixture = Fixture::new().await;
    let types: Vec<String> = (0..10).map(|number| format!("type{number}")).collect();
    let names = types.join(",");
    for pool in 0..1_000 {
        fixture.beat(&format!("{pool:024x}"), 1, &names).await;
        for name in &types {
            fixture.running(name, &format!("{pool:024x}"), &["job"]).await;
        }
    }
    for name in &types {
        let info: Vec<(String, i64)> = (0..1_000).map(|pool| (format!("{pool:024x}"), 1)).collect();
        let info: Vec<(&str, i64)> = info.iter().map(|(pool, count)| (pool.as_str(), *count)).collect();
        fixture.locks(name, 1_000, &info).await;
    }
    let ids: Vec<String> = (0..1_000).map(|pool| format!("{pool:024x}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let pools: Vec<DeadPool> = dead(&ids);
    reap_all(&fixture, &pools[..1]).await;
    for name in &types {
        assert_eq!(fixture.lock(name).await, Some(999));
    }
    reap_all(&fixture, &pools[1..]).await;
    for name in &types {
        assert_eq!(fixture.line::<usize>(&format!("LLEN work:jobs:{name}")).await, 1_000, "each job once");
    }
    for name in &types {
        assert_eq!(fixture.lock(name).await, Some(0));
        assert!(fixture.info(name).await.is_empty());
    }
    assert_eq!(fixture.line::<i64>("EXISTS work:worker_pools").await, 0);
}
