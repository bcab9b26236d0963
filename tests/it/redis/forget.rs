//! forget.lua and unreap.lua.

use poolkeeper::protocol::gocraft_work::forget::Forgotten;
use poolkeeper::protocol::gocraft_work::record::Deed;

use super::fixture::{Fixture, dead, job_type, silent, unknown};

async fn with_pool() -> Fixture {
    let mut fixture = Fixture::new().await;
    fixture.beat("D", 7, "a,b").await;
    fixture.line::<()>("HSET work:poolkeeper:bindings D {}").await;
    fixture
}

#[tokio::test]
async fn refuses_while_anything_of_the_pool_remains() {
    let mut fixture = with_pool().await;
    let types = [job_type("a"), job_type("b")];
    for (make, undo) in [
        ("LPUSH work:jobs:b:D:inprogress x", "DEL work:jobs:b:D:inprogress"),
        ("HSET work:jobs:a:lock_info D 1", "HDEL work:jobs:a:lock_info D"),
        ("HSET work:jobs:a:lock_info D -1", "HDEL work:jobs:a:lock_info D"),
    ] {
        fixture.line::<()>(make).await;
        assert_eq!(fixture.work.forget(&dead(&["D"]), &types).await.unwrap()["D"], Forgotten::Remains);
        assert_eq!(
            fixture.line::<i64>("EXISTS work:worker_pools work:worker_pools:D work:poolkeeper:bindings").await,
            3
        );
        fixture.line::<()>(undo).await;
    }
    fixture.line::<()>("HSET work:jobs:a:lock_info D 0").await;
    assert_eq!(fixture.work.forget(&dead(&["D"]), &types).await.unwrap()["D"], Forgotten::Forgotten);
    let keys: Vec<String> = fixture.line("KEYS *").await;
    assert!(keys.iter().all(|key| key.starts_with("work:poolkeeper:")), "{keys:?}");
}

#[tokio::test]
async fn the_second_run_finds_it_gone() {
    let mut fixture = with_pool().await;
    assert_eq!(fixture.work.forget(&dead(&["D"]), &[]).await.unwrap()["D"], Forgotten::Forgotten);
    let before = fixture.dump().await;
    assert_eq!(fixture.work.forget(&dead(&["D"]), &[]).await.unwrap()["D"], Forgotten::Gone);
    assert_eq!(fixture.dump().await, before);
}

#[tokio::test]
async fn a_heartbeat_that_moved_saves_the_pool() {
    let mut fixture = with_pool().await;
    let pools = [silent("D", 6), unknown("E")];
    fixture.line::<()>("SADD work:worker_pools E").await;
    let states = fixture.work.forget(&pools, &[]).await.unwrap();
    assert!(states.values().all(|state| *state == Forgotten::Moved), "{states:?}");
    let states = fixture.work.forget(&[silent("D", 7)], &[]).await.unwrap();
    assert_eq!(states["D"], Forgotten::Forgotten);
}

#[tokio::test]
async fn works_when_redis_is_out_of_memory() {
    let mut fixture = with_pool().await;
    fixture.work.fence(poolkeeper::protocol::gocraft_work::FenceOp::Advance).await.unwrap();
    fixture.line::<()>("CONFIG SET maxmemory 1").await;
    assert_eq!(fixture.work.forget(&dead(&["D"]), &[]).await.unwrap()["D"], Forgotten::Forgotten);
}

#[tokio::test]
async fn a_reaped_pool_that_beats_again_is_taken_out_once_and_recorded() {
    let mut fixture = with_pool().await;
    fixture.work.forget(&dead(&["D"]), &[]).await.unwrap();
    let pools = [("D".into(), serde_json::json!({"pod": "web-1"})), ("X".into(), serde_json::Value::Null)];
    assert!(fixture.work.unreap(&pools).await.unwrap().is_empty());
    fixture.beat("D", 8, "a").await;
    assert_eq!(fixture.work.unreap(&pools).await.unwrap(), ["D".into()]);
    assert!(fixture.work.unreap(&pools).await.unwrap().is_empty());
    let (entries, _) = fixture.work.read_record("", 10).await.unwrap();
    let last = &entries.last().unwrap().deed;
    assert!(
        matches!(last, Deed::Resurrected { pool, detail } if pool.as_str() == "D" && detail["pod"] == "web-1"),
        "{last:?}"
    );
}

#[tokio::test]
async fn tombstones_older_than_a_day_are_dropped() {
    let mut fixture = with_pool().await;
    fixture.line::<()>("ZADD work:poolkeeper:reaped 1000 old").await;
    fixture.work.forget(&dead(&["D"]), &[]).await.unwrap();
    let reaped: Vec<String> = fixture.line("ZRANGE work:poolkeeper:reaped 0 -1").await;
    assert_eq!(reaped, ["D"]);
}

#[tokio::test]
async fn a_pool_that_signed_off_by_itself_is_tidied_up_and_not_told_of() {
    let mut fixture = Fixture::new().await;
    fixture.line::<()>("SADD work:known_jobs a").await;
    fixture.line::<()>("HSET work:jobs:a:lock_info D 0").await;
    fixture.line::<()>("HSET work:poolkeeper:bindings D {}").await;
    let states = fixture.work.forget(&dead(&["D"]), &[job_type("a")]).await.unwrap();
    assert_eq!(states["D"], Forgotten::Gone);
    assert_eq!(fixture.line::<i64>("EXISTS work:poolkeeper:bindings work:jobs:a:lock_info").await, 0);
    assert_eq!(fixture.line::<i64>("XLEN work:poolkeeper:record").await, 0, "a clean stop is no reap");
    assert_eq!(fixture.line::<Option<i64>>("HGET work:poolkeeper:totals pools_reaped").await, None);
}
