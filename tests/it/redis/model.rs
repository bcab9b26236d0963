//! settle.lua against a simple model: random lists, counts, pools and deaths.

use std::collections::BTreeMap;

use poolkeeper::protocol::gocraft_work::settle::{CoveredPool, DeadPool, Settled};
use proptest::prelude::*;

use super::fixture::{Fixture, job_type};
use crate::support::redis::run;

#[derive(Debug, Clone)]
struct Pool {
    listed: bool,
    dead: bool,
    jobs: usize,
    count: Option<i64>,
}

#[derive(Debug, Clone)]
struct World {
    waiting: usize,
    lock: Option<i64>,
    pools: Vec<Pool>,
    limit: u32,
}

fn pool() -> impl Strategy<Value = Pool> {
    (any::<bool>(), any::<bool>(), 0..5_usize, proptest::option::of(-2..6_i64))
        .prop_map(|(listed, dead, jobs, count)| Pool { listed, dead, jobs, count })
}

fn world() -> impl Strategy<Value = World> {
    (0..4_usize, proptest::option::of(-3..12_i64), proptest::collection::vec(pool(), 0..6), 1..7_u32)
        .prop_map(|(waiting, lock, pools, limit)| World { waiting, lock, pools, limit })
}

async fn check(fixture: &mut Fixture, world: &World) {
    fixture.line::<()>("FLUSHALL").await;
    let mut expected: Vec<String> = (0..world.waiting).map(|job| format!("w{job}")).collect();
    for job in expected.iter().rev() {
        fixture.line::<()>(&format!("LPUSH work:jobs:a {job}")).await;
    }
    if let Some(lock) = world.lock {
        fixture.locks("a", lock, &[]).await;
    }
    let (mut dead, mut covered, mut runs) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (at, pool) in world.pools.iter().enumerate() {
        let id = format!("p{at}");
        if pool.listed {
            fixture.beat(&id, 1, "a").await;
        }
        let jobs: Vec<String> = (0..pool.jobs).map(|job| format!("{id}-{job}")).collect();
        fixture.running("a", &id, &jobs.iter().map(String::as_str).collect::<Vec<_>>()).await;
        if let Some(count) = pool.count {
            run::<(), _>(&mut fixture.redis, ["HSET", "work:jobs:a:lock_info", &id, &count.to_string()]).await;
        }
        if pool.dead {
            dead.push(DeadPool::certain(id.into()));
            // The last one taken goes first, so that the first one taken ends at the right.
            expected.extend(jobs.into_iter().rev());
        } else {
            if pool.jobs > 0 {
                runs.insert(id.clone(), pool.jobs as i64);
            } else if pool.listed && pool.count.is_some() {
                runs.insert(id.clone(), 0);
            }
            covered.push(CoveredPool { id: id.into(), stranded: 0 });
        }
    }

    let everything = jobs_anywhere(fixture).await;
    let mut portions = 0;
    loop {
        let settled = fixture.work.settle(&job_type("a"), &dead, &covered, world.limit).await.unwrap();
        let Settled::Done(report) = settled else { panic!("{settled:?}") };
        assert!(report.moved <= u64::from(world.limit));
        assert_eq!(jobs_anywhere(fixture).await, everything, "no job is lost or doubled");
        let lock = fixture.lock("a").await.unwrap_or(0);
        let info = fixture.info("a").await;
        assert_eq!(lock, info.values().sum::<i64>(), "the lock is the sum of the counts");
        for (id, count) in &info {
            assert_eq!(*count, fixture.list(&format!("work:jobs:a:{id}:inprogress")).await.len() as i64);
        }
        if report.left == 0 {
            break;
        }
        portions += 1;
        assert!(portions < 50);
    }
    // Several dead pools in portions take turns, but within one of them the order is kept.
    let list = fixture.list("work:jobs:a").await;
    if world.limit as usize >= everything.len() {
        assert_eq!(list, expected);
    }
    let mut sorted = (list, expected);
    sorted.0.sort();
    sorted.1.sort();
    assert_eq!(sorted.0, sorted.1);
    assert_eq!(fixture.info("a").await, runs);

    let before = fixture.dump().await;
    fixture.work.settle(&job_type("a"), &dead, &covered, world.limit).await.unwrap();
    assert_eq!(fixture.dump().await, before, "the second run does nothing");
}

async fn jobs_anywhere(fixture: &mut Fixture) -> Vec<String> {
    let mut jobs = fixture.list("work:jobs:a").await;
    for pool in 0..6 {
        jobs.extend(fixture.list(&format!("work:jobs:a:p{pool}:inprogress")).await);
    }
    jobs.sort();
    jobs
}

#[test]
fn settling_agrees_with_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let fixture = std::cell::RefCell::new(runtime.block_on(Fixture::new()));
    let config = ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    runner
        .run(&world(), |world| {
            runtime.block_on(check(&mut fixture.borrow_mut(), &world));
            Ok(())
        })
        .unwrap();
}
