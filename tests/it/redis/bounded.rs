//! Redis is never blocked for long, and many deaths at once are settled quickly.

use std::collections::BTreeMap;
use std::time::Instant;

use poolkeeper::protocol::gocraft_work::settle::DeadPool;
use poolkeeper::reaper::settle::reap;

use super::fixture::{Fixture, dead};

/// What scripts took since the log was reset, in microseconds: the median, the longest, and all together. The
/// rule is 5 ms; the server's clock runs on while a loaded machine runs others, so only the median is a measure.
async fn took(fixture: &mut Fixture) -> (i64, i64, i64) {
    let entries: Vec<redis::Value> = fixture.line("SLOWLOG GET 10000").await;
    let mut micros: Vec<i64> = entries
        .into_iter()
        .filter_map(|entry| {
            let redis::Value::Array(mut fields) = entry else { panic!("{entry:?}") };
            fields.truncate(4);
            let entry: (i64, i64, i64, Vec<String>) = redis::from_redis_value(redis::Value::Array(fields)).unwrap();
            (entry.3[0] == "EVALSHA").then_some(entry.2)
        })
        .collect();
    micros.sort_unstable();
    (micros[micros.len() / 2], micros[micros.len() - 1], micros.iter().sum())
}

async fn log_scripts(fixture: &mut Fixture) {
    fixture.line::<()>("CONFIG SET slowlog-max-len 10000").await;
    fixture.line::<()>("CONFIG SET slowlog-log-slower-than 0").await;
    fixture.line::<()>("SLOWLOG RESET").await;
}

#[tokio::test]
async fn a_hundred_thousand_entries_go_back_in_portions() {
    let mut fixture = Fixture::new().await;
    fixture.beat("D", 1, "a").await;
    let fill = "for i = 1, 100000 do redis.call('LPUSH', KEYS[1], 'job' .. i) end";
    crate::support::redis::run::<(), _>(&mut fixture.redis, ["EVAL", fill, "1", "work:jobs:a:D:inprogress"]).await;
    fixture.locks("a", 100_000, &[("D", 100_000)]).await;
    let observation = fixture.observe().await;
    log_scripts(&mut fixture).await;
    let began = Instant::now();
    let reaped = reap(&fixture.work, &observation, &dead(&["D"]), &BTreeMap::new()).await.unwrap();
    let elapsed = began.elapsed();
    let (median, longest, _) = took(&mut fixture).await;
    assert!(reaped.is_complete());
    assert_eq!(reaped.pools[&"D".into()].jobs, 100_000);
    assert_eq!(fixture.lock("a").await, Some(0));
    let list = fixture.list("work:jobs:a").await;
    assert_eq!((list.len(), list[0].as_str(), list[99_999].as_str()), (100_000, "job100000", "job1"));
    println!("100,000 entries in {elapsed:?}, scripts {median} us at the median, {longest} us at most");
    assert!(median < 5_000, "{median} us");
}

#[tokio::test]
async fn one_pool_of_ten_types_and_a_thousand_pools() {
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
    let observation = fixture.observe().await;
    log_scripts(&mut fixture).await;

    let began = Instant::now();
    let reaped = reap(&fixture.work, &observation, &pools[..1], &BTreeMap::new()).await.unwrap();
    println!("1 of 1,000 pools, 10 types: {:?}", began.elapsed());
    assert!(reaped.is_complete());
    log_scripts(&mut fixture).await;

    let observation = fixture.observe().await;
    let began = Instant::now();
    let reaped = reap(&fixture.work, &observation, &pools[1..], &BTreeMap::new()).await.unwrap();
    println!(
        "999 pools, 10 types: {:?}, scripts (median, longest, sum): {:?} us",
        began.elapsed(),
        took(&mut fixture).await
    );
    assert!(reaped.is_complete());
    assert_eq!(reaped.pools.values().map(|pool| pool.jobs).sum::<u64>(), 9_990);
    for name in &types {
        assert_eq!(fixture.lock(name).await, Some(0));
        assert!(fixture.info(name).await.is_empty());
    }
    assert_eq!(fixture.line::<i64>("EXISTS work:worker_pools").await, 0);

    fixture.beat("small", 1, &names).await;
    for name in &types {
        fixture.running(name, "small", &["job"]).await;
        fixture.locks(name, 1, &[("small", 1)]).await;
    }
    let observation = fixture.observe().await;
    let began = Instant::now();
    assert!(reap(&fixture.work, &observation, &dead(&["small"]), &BTreeMap::new()).await.unwrap().is_complete());
    println!("the only pool, 10 types: {:?}", began.elapsed());
}
