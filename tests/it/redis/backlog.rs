//! `backlog.lua` on the watching connection: a queue without pods wakes at its first job.

use std::time::{Duration, Instant};

use poolkeeper::protocol::EpochSeconds;
use poolkeeper::protocol::gocraft_work::backlog::{Backlog, parse_backlog};
use poolkeeper::redis::tracking::Watching;

use super::fixture::{Fixture, job, job_type};
use crate::support::redis::{PATIENCE, run};

/// No run within a test is due to it.
const RESYNC: Duration = Duration::from_secs(300);

async fn next(watching: &mut Watching) -> Backlog {
    let value = tokio::time::timeout(PATIENCE, watching.next()).await.expect("a run within the bound");
    parse_backlog(value.unwrap()).unwrap()
}

async fn watching(fixture: &Fixture, names: &[&str]) -> (Watching, Backlog) {
    let names: Vec<_> = names.iter().map(|name| job_type(name)).collect();
    let mut watching = fixture.work.client().tracker().watch(fixture.work.watch_backlog(&names, RESYNC));
    let first = next(&mut watching).await;
    assert!(watching.tracking_active());
    (watching, first)
}

async fn scripts(fixture: &mut Fixture) -> u64 {
    let info: String = fixture.line("INFO commandstats").await;
    let calls = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn the_first_job_of_any_list_wakes() {
    let mut fixture = Fixture::new().await;
    let (mut watching, first) = watching(&fixture, &["a", "b"]).await;
    assert_eq!(first, Backlog::default());
    let mut took = Vec::new();
    for round in 0..10 {
        let list = if round % 2 == 0 { "work:jobs:a" } else { "work:jobs:b" };
        let began = Instant::now();
        run::<(), _>(&mut fixture.redis, ["LPUSH", list, &job("a", "1")]).await;
        assert_eq!(next(&mut watching).await, Backlog { waiting: true, ..Backlog::default() });
        took.push(began.elapsed());
        fixture.line::<()>(&format!("DEL {list}")).await;
        assert_eq!(next(&mut watching).await, Backlog::default());
    }
    took.sort();
    println!("woken after {:?} at the median, {:?} at most", took[took.len() / 2], took[took.len() - 1]);
}

#[tokio::test]
async fn an_entry_of_either_set_wakes_and_says_when_it_is_due() {
    let mut fixture = Fixture::new().await;
    let (mut watching, _) = watching(&fixture, &[]).await;
    for (command, first_due) in [
        ("ZADD work:scheduled 500.5 x", Some(501)),
        ("ZADD work:retry 400 y", Some(400)),
        ("ZADD work:retry -inf z", Some(0)),
        ("DEL work:retry", Some(501)),
        ("ZADD work:scheduled +inf x", None),
        ("ZADD work:retry 5 y", Some(5)),
    ] {
        fixture.line::<()>(command).await;
        let expected = Backlog { first_due: first_due.map(EpochSeconds), ..Backlog::default() };
        assert_eq!(next(&mut watching).await, expected, "{command}");
    }
}

#[tokio::test]
async fn what_happens_in_other_lists_does_not_wake() {
    let mut fixture = Fixture::new().await;
    for number in 0..50 {
        run::<(), _>(&mut fixture.redis, ["LPUSH", "work:jobs:other", &job("other", &number.to_string())]).await;
    }
    let (mut watching, _) = watching(&fixture, &["a"]).await;
    let before = scripts(&mut fixture).await;
    for _ in 0..50 {
        fixture.line::<()>("INCR work:jobs:other:lock").await;
        fixture.line::<()>("HINCRBY work:jobs:other:lock_info P 1").await;
        fixture.line::<()>("RPOPLPUSH work:jobs:other work:jobs:other:P:inprogress").await;
        fixture.line::<()>("HSET work:worker_pools:P heartbeat_at 1").await;
    }
    fixture.line::<()>("LPUSH work:jobs:a x").await;
    assert!(next(&mut watching).await.waiting, "the first run since is that for the job");
    assert_eq!(scripts(&mut fixture).await, before + 1);
}

/// Also in the sets, and while jobs wait: every key is read on every run, or Redis would not tell of it again.
#[tokio::test]
async fn keys_of_a_wrong_type_hold_nothing_back() {
    let mut fixture = Fixture::new().await;
    for key in ["work:jobs:a", "work:scheduled", "work:retry"] {
        fixture.line::<()>(&format!("SET {key} x")).await;
    }
    let (mut watching, first) = watching(&fixture, &["a", "b"]).await;
    assert_eq!((first.waiting, first.first_due), (false, None));
    fixture.line::<()>("LPUSH work:jobs:b x").await;
    assert!(next(&mut watching).await.waiting);
    for command in ["DEL work:jobs:a", "DEL work:scheduled", "DEL work:retry"] {
        fixture.line::<()>(command).await;
        assert!(next(&mut watching).await.waiting);
    }
    let before = fixture.dump().await;
    fixture.line::<()>("ZADD work:retry 5 y").await;
    assert_eq!(next(&mut watching).await.first_due, Some(EpochSeconds(5)));
    fixture.line::<()>("ZREM work:retry y").await;
    assert_eq!(next(&mut watching).await.first_due, None);
    assert_eq!(fixture.dump().await, before, "watching changes nothing");
}

#[tokio::test]
async fn job_types_can_be_added_to_a_watch() {
    let mut fixture = Fixture::new().await;
    let (mut watching, _) = watching(&fixture, &["a"]).await;
    let more = fixture.work.watch_backlog(&[job_type("a"), job_type("b")], RESYNC);
    watching.replace(more.keys, more.args);
    assert_eq!(next(&mut watching).await, Backlog::default());
    fixture.line::<()>("LPUSH work:jobs:b x").await;
    assert!(next(&mut watching).await.waiting);
}
