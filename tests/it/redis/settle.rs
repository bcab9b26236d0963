//! settle.lua: the truth is what runs.

use poolkeeper::protocol::gocraft_work::ScriptError;
use poolkeeper::protocol::gocraft_work::forget::Forgotten;
use poolkeeper::protocol::gocraft_work::record::Deed;
use poolkeeper::protocol::gocraft_work::settle::{DeadPool, Report, Settled};
use poolkeeper::redis::Reason;

use super::fixture::{Fixture, beatless, dead, job_type, living, silent, unknown};
use crate::support::redis::run;

fn done(settled: Settled) -> Report {
    match settled {
        Settled::Done(report) => report,
        other => panic!("{other:?}"),
    }
}

async fn c03() -> Fixture {
    let mut fixture = Fixture::new().await;
    fixture.beat("D", 1_000, "email").await;
    fixture.beat("L", 2_000, "email").await;
    fixture.locks("email", 3, &[("D", 1), ("L", 2)]).await;
    fixture.running("email", "D", &["d1", "d2", "d3"]).await;
    fixture.running("email", "L", &["l1", "l2"]).await;
    fixture.line::<()>("LPUSH work:jobs:email w1").await;
    fixture
}

#[tokio::test]
async fn frees_what_the_dead_held_and_counts_what_the_living_hold() {
    let mut fixture = c03().await;
    let email = job_type("email");
    let report = done(fixture.work.settle(&email, &dead(&["D"]), &living(&["L"]), 500).await.unwrap());
    assert_eq!((report.moved, report.left), (3, 0));
    assert_eq!((report.lock_before, report.lock_after), (Some(3), Some(2)));
    assert_eq!(report.by_dead, [(3, 1)]);
    assert_eq!(fixture.lock("email").await, Some(2));
    assert_eq!(fixture.info("email").await, [("L".to_owned(), 2)].into());
    // The right end runs next: the oldest taken first, all of them ahead of what waited.
    assert_eq!(fixture.list("work:jobs:email").await, ["w1", "d3", "d2", "d1"]);
}

#[tokio::test]
async fn the_second_run_changes_nothing() {
    let mut fixture = c03().await;
    let email = job_type("email");
    done(fixture.work.settle(&email, &dead(&["D"]), &living(&["L"]), 500).await.unwrap());
    let before = fixture.dump().await;
    let report = done(fixture.work.settle(&email, &dead(&["D"]), &living(&["L"]), 500).await.unwrap());
    assert_eq!((report.moved, report.repaired), (0, 0));
    assert_eq!(fixture.dump().await, before);
}

#[tokio::test]
async fn every_portion_leaves_true_counts() {
    let mut fixture = c03().await;
    let email = job_type("email");
    for (left, lock) in [(2, 4), (1, 3), (0, 2)] {
        let report = done(fixture.work.settle(&email, &dead(&["D"]), &living(&["L"]), 1).await.unwrap());
        assert_eq!((report.moved, report.left), (1, left));
        assert_eq!(fixture.lock("email").await, Some(lock));
        assert_eq!(fixture.info("email").await.values().sum::<i64>(), lock);
    }
    assert_eq!(fixture.list("work:jobs:email").await, ["w1", "d3", "d2", "d1"]);
}

#[tokio::test]
async fn a_pool_that_nobody_named_stops_it() {
    let mut fixture = c03().await;
    let email = job_type("email");
    // Fetched before its first heartbeat: known from its lock only.
    fixture.line::<()>("HSET work:jobs:email:lock_info N 1").await;
    let before = fixture.dump().await;
    let settled = fixture.work.settle(&email, &dead(&["D"]), &living(&["L"]), 500).await.unwrap();
    let after = fixture.dump().await;
    assert_eq!(settled, Settled::LookAgain(vec!["N".into()]));
    let changed: Vec<_> =
        after.iter().filter(|(key, bytes)| before.get(*key) != Some(bytes)).map(|(key, _)| key).collect();
    assert_eq!(changed, ["work:poolkeeper:fences", "work:poolkeeper:schema"]);
    let settled = fixture.work.settle(&email, &dead(&["D", "N"]), &[], 500).await.unwrap();
    assert_eq!(settled, Settled::LookAgain(vec!["L".into()]));
    assert_eq!(fixture.dump().await, after);
}

#[tokio::test]
async fn a_beat_refutes_silence_but_not_a_certain_proof() {
    let fixture = c03().await;
    let email = job_type("email");
    let settled = fixture.work.settle(&email, &[silent("D", 999)], &living(&["L"]), 500).await.unwrap();
    assert_eq!(settled, Settled::Moved(vec!["D".into()]));
    let settled = fixture.work.settle(&email, &[unknown("D")], &living(&["L"]), 500).await.unwrap();
    assert_eq!(settled, Settled::Moved(vec!["D".into()]));
    done(fixture.work.settle(&email, &[silent("D", 1_000)], &living(&["L"]), 500).await.unwrap());
}

/// C01: the pool is in no set, its list and lock are all that is left.
#[tokio::test]
async fn an_unknown_pool_is_settled_unless_it_beats_meanwhile() {
    let mut fixture = Fixture::new().await;
    fixture.line::<()>("LPUSH work:jobs:replicate r3").await;
    fixture.running("replicate", "D", &["r2", "r1"]).await;
    fixture.locks("replicate", 2, &[("D", 2)]).await;
    let replicate = job_type("replicate");
    fixture.beat("D", 5, "replicate").await;
    let settled = fixture.work.settle(&replicate, &[unknown("D")], &[], 500).await.unwrap();
    assert_eq!(settled, Settled::Moved(vec!["D".into()]));
    fixture.line::<()>("DEL work:worker_pools work:worker_pools:D").await;
    done(fixture.work.settle(&replicate, &[unknown("D")], &[], 500).await.unwrap());
    assert_eq!(fixture.list("work:jobs:replicate").await.len(), 3);
    assert_eq!(fixture.lock("replicate").await, Some(0));
    assert!(fixture.info("replicate").await.is_empty());
}

/// As the library's own reaper leaves it when it dies between its two deletions.
#[tokio::test]
async fn a_listed_pool_without_a_heartbeat_is_settled_and_forgotten_unless_it_beats_meanwhile() {
    let mut fixture = Fixture::new().await;
    let types = [job_type("a")];
    fixture.running("a", "D", &["1"]).await;
    fixture.locks("a", 1, &[("D", 1)]).await;
    // Judged while it was listed, but it is not any more, and the other way round.
    let moved = Settled::Moved(vec!["D".into()]);
    assert_eq!(fixture.work.settle(&types[0], &[beatless("D")], &[], 500).await.unwrap(), moved);
    fixture.beat("D", 5, "a").await;
    assert_eq!(fixture.work.settle(&types[0], &[beatless("D")], &[], 500).await.unwrap(), moved);
    assert_eq!(fixture.work.forget(&[beatless("D")], &[]).await.unwrap()["D"], Forgotten::Moved);
    fixture.line::<()>("DEL work:worker_pools:D").await;
    assert_eq!(fixture.work.settle(&types[0], &[unknown("D")], &[], 500).await.unwrap(), moved);
    assert_eq!(fixture.work.forget(&[unknown("D")], &[]).await.unwrap()["D"], Forgotten::Moved);
    let report = done(fixture.work.settle(&types[0], &[beatless("D")], &[], 500).await.unwrap());
    assert_eq!(report.moved, 1);
    assert_eq!(fixture.work.forget(&[beatless("D")], &types).await.unwrap()["D"], Forgotten::Forgotten);
    assert_eq!(fixture.line::<i64>("EXISTS work:worker_pools work:jobs:a:lock_info").await, 0);
}

/// C07.
#[tokio::test]
async fn jobs_move_byte_for_byte() {
    let mut fixture = Fixture::new().await;
    let body = r#"{"name":"img","id":"a1","t":1774958400,"args":{"activity_id":393087288629462191,"tags":[],"ratio":1.10,"who":"Zoë"}}"#;
    fixture.running("img", "D", &[body, "not JSON at all"]).await;
    run::<(), &[u8]>(&mut fixture.redis, [&b"LPUSH"[..], b"work:jobs:img:D:inprogress", &[0, 255, 10, 13]]).await;
    fixture.locks("img", 3, &[("D", 3)]).await;
    done(fixture.work.settle(&job_type("img"), &dead(&["D"]), &[], 500).await.unwrap());
    let list: Vec<Vec<u8>> = fixture.line("LRANGE work:jobs:img 0 -1").await;
    assert_eq!(list, [vec![0u8, 255, 10, 13], b"not JSON at all".to_vec(), body.as_bytes().to_vec()]);
}

#[tokio::test]
async fn leaked_locks_are_lowered_and_lost_ones_raised() {
    let mut fixture = Fixture::new().await;
    fixture.beat("L", 1, "a").await;
    fixture.beat("M", 1, "a").await;
    fixture.locks("a", 9, &[("L", 4), ("M", -1), ("gone", 0)]).await;
    fixture.running("a", "L", &["1"]).await;
    fixture.running("a", "M", &["2", "3"]).await;
    let report = done(fixture.work.settle(&job_type("a"), &[], &living(&["L", "M"]), 500).await.unwrap());
    assert_eq!(report.repaired, 3);
    assert_eq!(fixture.lock("a").await, Some(3));
    assert_eq!(fixture.info("a").await, [("L".to_owned(), 1), ("M".to_owned(), 2)].into());
}

#[tokio::test]
async fn stranded_entries_hold_no_lock() {
    let mut fixture = Fixture::new().await;
    fixture.running("a", "L", &["1", "2"]).await;
    let mut pools = living(&["L"]);
    pools[0].stranded = 1;
    done(fixture.work.settle(&job_type("a"), &[], &pools, 500).await.unwrap());
    assert_eq!(fixture.lock("a").await, Some(1));
    assert_eq!(fixture.list("work:jobs:a:L:inprogress").await.len(), 2);
}

#[tokio::test]
async fn stranded_entries_are_those_of_the_pool_that_is_named_beside_others() {
    let mut fixture = Fixture::new().await;
    for (pool, entries) in
        [("D", &["1"][..]), ("E", &["2", "3"]), ("L", &["4"]), ("M", &["5", "6", "7"]), ("N", &["8", "9"])]
    {
        fixture.running("a", pool, entries).await;
    }
    fixture.locks("a", 9, &[("D", 1), ("E", 2), ("L", 1), ("M", 3), ("N", 2)]).await;
    fixture.beat("D", 1, "a").await;
    let mut pools = living(&["L", "M", "N"]);
    (pools[1].stranded, pools[2].stranded) = (2, 1);
    let ended = [silent("D", 1), DeadPool::certain("E".into())];
    let report = done(fixture.work.settle(&job_type("a"), &ended, &pools, 500).await.unwrap());
    assert_eq!((report.moved, report.repaired, fixture.lock("a").await), (3, 2, Some(3)));
    assert_eq!(fixture.info("a").await, [("L".to_owned(), 1), ("M".to_owned(), 1), ("N".to_owned(), 1)].into());
}

#[tokio::test]
async fn works_when_redis_is_out_of_memory() {
    let mut fixture = c03().await;
    fixture.work.fence(poolkeeper::protocol::gocraft_work::FenceOp::Advance).await.unwrap();
    fixture.line::<()>("CONFIG SET maxmemory 1").await;
    done(fixture.work.settle(&job_type("email"), &dead(&["D"]), &living(&["L"]), 500).await.unwrap());
    assert_eq!(fixture.lock("email").await, Some(2));
    assert_eq!(fixture.list("work:jobs:email").await, ["w1", "d3", "d2", "d1"]);
}

#[tokio::test]
async fn a_key_of_a_wrong_type_is_named_and_nothing_is_written() {
    for key in [
        "work:jobs:email",
        "work:jobs:email:lock",
        "work:jobs:email:lock_info",
        "work:jobs:email:D:inprogress",
        "work:jobs:email:L:inprogress",
        "work:worker_pools",
        "work:poolkeeper:record",
        "work:poolkeeper:totals",
    ] {
        let mut fixture = c03().await;
        fixture.work.fence(poolkeeper::protocol::gocraft_work::FenceOp::Advance).await.unwrap();
        fixture.line::<()>(&format!("DEL {key}")).await;
        fixture.line::<()>(&format!("ZADD {key} 1 x")).await;
        let before = fixture.dump().await;
        let error = fixture.work.settle(&job_type("email"), &dead(&["D"]), &living(&["L"]), 500).await.unwrap_err();
        assert_eq!(error, ScriptError::Spoiled { key: key.to_owned() });
        assert_eq!(fixture.dump().await, before, "{key}");
    }
}

#[tokio::test]
async fn it_survives_script_flush() {
    let mut fixture = c03().await;
    let email = job_type("email");
    fixture.work.settle(&email, &[], &living(&["D", "L"]), 500).await.unwrap();
    fixture.line::<()>("SCRIPT FLUSH").await;
    done(fixture.work.settle(&email, &dead(&["D"]), &living(&["L"]), 500).await.unwrap());
}

#[tokio::test]
async fn a_replica_refuses_by_name() {
    let mut fixture = c03().await;
    fixture.work.fence(poolkeeper::protocol::gocraft_work::FenceOp::Advance).await.unwrap();
    fixture.line::<()>("REPLICAOF 127.0.0.1 1").await;
    let error = fixture.work.settle(&job_type("email"), &dead(&["D"]), &living(&["L"]), 500).await.unwrap_err();
    assert!(matches!(&error, ScriptError::Failed(failure) if failure.reason == Reason::ReadOnly), "{error}");
}

#[tokio::test]
async fn a_type_without_locks_or_lists_stays_without() {
    let mut fixture = Fixture::new().await;
    done(fixture.work.settle(&job_type("x"), &dead(&["D"]), &living(&["L"]), 500).await.unwrap());
    let keys: Vec<String> = fixture.line("KEYS work:jobs:*").await;
    assert!(keys.is_empty(), "{keys:?}");
}

#[tokio::test]
async fn counts_that_are_no_numbers_are_seen_and_put_right() {
    for odd in
        ["abc", "99999999999999999999", "inf", "nan", "1e300", "1.5", "-inf", "0x10", "+1", "01", "9007199254740993"]
    {
        let mut fixture = Fixture::new().await;
        fixture.beat("L", 1, "a").await;
        fixture.running("a", "L", &["1"]).await;
        fixture.line::<()>(&format!("SET work:jobs:a:lock {odd}")).await;
        fixture.line::<()>(&format!("HSET work:jobs:a:lock_info L {odd} D {odd} E {odd}")).await;
        let seen = fixture.observe().await;
        assert_eq!(seen.pools.len(), 3, "{odd}: every id is known");
        assert!(seen.job_types[&job_type("a")].lock_info.values().all(|count| *count != 0 && *count != 1), "{odd}");
        let pools = living(&["L", "E"]);
        let report = done(fixture.work.settle(&job_type("a"), &dead(&["D"]), &pools, 500).await.unwrap());
        assert!(report.repaired > 0, "{odd}");
        assert_eq!(fixture.lock("a").await, Some(1), "{odd}");
        assert_eq!(fixture.info("a").await, [("L".to_owned(), 1)].into(), "{odd}");
    }
}

/// Redis takes any bytes for a name; those of others must not keep a job type from being settled.
#[tokio::test]
async fn names_that_are_no_text_are_settled_like_any_other() {
    let mut fixture = Fixture::new().await;
    let redis = &mut fixture.redis;
    run::<(), &[u8]>(redis, [&b"SADD"[..], b"work:worker_pools", b"D\xff", b"L"]).await;
    run::<(), &[u8]>(redis, [&b"SADD"[..], b"work:known_jobs", b"a\xfe"]).await;
    run::<(), &[u8]>(redis, [&b"HSET"[..], b"work:jobs:a\xfe:lock_info", b"D\xff", b"1"]).await;
    run::<(), &[u8]>(redis, [&b"SET"[..], b"work:jobs:a\xfe:lock", b"1"]).await;
    run::<(), &[u8]>(redis, [&b"LPUSH"[..], b"work:jobs:a\xfe:D\xff:inprogress", b"job"]).await;
    let mut observer = poolkeeper::protocol::gocraft_work::Observer::default();
    let seen = observer.observe(&fixture.work).await.unwrap();
    let (odd_type, odd_seen) = seen.job_types.iter().next().unwrap();
    let odd_pool = odd_seen.in_progress.keys().next().unwrap();
    assert!(seen.pools[odd_pool].listed && seen.pools.len() == 2, "{seen:?}");
    let gone = [DeadPool { id: odd_pool.clone(), ..beatless("") }];
    let report = done(fixture.work.settle(odd_type, &gone, &living(&["L"]), 500).await.unwrap());
    assert_eq!((report.moved, report.lock_after), (1, Some(0)));
    let states = fixture.work.forget(&gone, std::slice::from_ref(odd_type)).await.unwrap();
    assert_eq!(states[odd_pool], Forgotten::Forgotten);
    assert_eq!(fixture.line::<Vec<String>>("SMEMBERS work:worker_pools").await, ["L"]);
    let (entries, _) = fixture.work.read_record("", 10).await.unwrap();
    assert!(matches!(&entries[0].deed, Deed::Reap { job_type, .. } if job_type == odd_type), "{entries:?}");
}
