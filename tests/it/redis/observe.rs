//! observe.lua and the sweep.

use poolkeeper::protocol::gocraft_work::{FenceOp, GocraftWork, Namespace, Observer, Sweep};
use poolkeeper::protocol::{EpochSeconds, JobTypeName, PoolId};
use poolkeeper::redis::Reason;

use super::fixture::{Fixture, job, job_type, speaker};
use crate::support::redis::run;

async fn commands(fixture: &mut Fixture) -> u64 {
    let info: String = fixture.line("INFO commandstats").await;
    let line = info.lines().find(|line| line.starts_with("cmdstat_evalsha:"));
    line.and_then(|line| line.split(['=', ',']).nth(1)).map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test]
async fn shows_all_of_a_namespace_and_needs_one_script_when_nothing_new_is_there() {
    let mut fixture = Fixture::new().await;
    fixture.beat("L", 2_000, "email,img").await;
    fixture.locks("email", 3, &[("L", 2), ("N", 1), ("gone", 0)]).await;
    fixture.running("email", "L", &["l1", "l2"]).await;
    fixture.line::<()>("SADD work:known_jobs old").await;
    run::<(), _>(&mut fixture.redis, ["RPUSH", "work:jobs:email", &job("email", "1"), &job("email", "2")]).await;
    fixture.line::<()>("MSET work:jobs:email:max_concurrency 3").await;
    run::<(), _>(&mut fixture.redis, ["SET", "work:jobs:img:paused", ""]).await;
    fixture.line::<()>("HSET work:poolkeeper:totals jobs_requeued 4").await;

    let mut observer = Observer::default();
    observer.name_job_types([job_type("named")].into());
    let seen = observer.observe(&fixture.work).await.unwrap();
    let names: Vec<&str> = seen.job_types.keys().map(JobTypeName::as_str).collect();
    assert_eq!(names, ["email", "img", "named", "old"]);
    let email = &seen.job_types[&job_type("email")];
    assert_eq!((email.waiting, email.lock, email.cap, email.running()), (2, 3, Some(3), 2));
    assert_eq!(email.oldest_enqueued_at, Some(EpochSeconds(1_774_958_400)));
    assert_eq!(email.lock_info.len(), 2);
    assert!(seen.job_types[&job_type("img")].paused);
    assert_eq!(seen.pools.keys().map(PoolId::as_str).collect::<Vec<_>>(), ["L", "N"]);
    assert!(seen.pools["L"].listed && !seen.pools["N"].listed);
    let beat = seen.pools["L"].heartbeat.as_ref().unwrap();
    assert_eq!((beat.heartbeat_at, beat.concurrency), (EpochSeconds(2_000), 4));
    assert_eq!(seen.totals["jobs_requeued"], 4);

    let before = commands(&mut fixture).await;
    let again = observer.observe(&fixture.work).await.unwrap();
    assert_eq!(commands(&mut fixture).await, before + 1);
    assert_eq!(again.job_types, seen.job_types);
    assert_eq!(again.connection, seen.connection);

    // A pool that is new shows with its heartbeat in the same pass.
    fixture.beat("M", 3_000, "email").await;
    assert!(observer.observe(&fixture.work).await.unwrap().pools["M"].heartbeat.is_some());
    fixture.line::<()>("DEL work:worker_pools:M").await;
    fixture.line::<()>("SREM work:worker_pools M").await;
    assert!(!observer.observe(&fixture.work).await.unwrap().pools.contains_key("M"));
}

#[tokio::test]
async fn a_key_of_a_wrong_type_spoils_only_its_job_type() {
    for (key, spoils) in [
        ("work:jobs:a", true),
        ("work:jobs:a:lock", true),
        ("work:jobs:a:lock_info", true),
        ("work:jobs:a:max_concurrency", true),
        ("work:jobs:a:L:inprogress", true),
        ("work:worker_pools:L", false),
    ] {
        let mut fixture = Fixture::new().await;
        fixture.beat("L", 1, "a,b").await;
        fixture.line::<()>("LPUSH work:jobs:b x").await;
        let mut observer = Observer::default();
        observer.observe(&fixture.work).await.unwrap();
        fixture.line::<()>(&format!("DEL {key}")).await;
        fixture.line::<()>(&format!("ZADD {key} 1 x")).await;
        let seen = observer.observe(&fixture.work).await.unwrap();
        assert_eq!(seen.job_types[&job_type("a")].spoiled.as_deref(), spoils.then_some(key));
        assert_eq!(seen.job_types[&job_type("b")].spoiled, None);
        assert_eq!(seen.job_types[&job_type("b")].waiting, 1);
    }
}

#[tokio::test]
async fn a_key_without_which_nothing_can_be_done_is_named_where_it_has_a_wrong_type() {
    let mut fixture = Fixture::new().await;
    for (key, should_be) in [
        ("work:worker_pools", "a set"),
        ("work:known_jobs", "a set"),
        ("work:poolkeeper:bindings", "a hash"),
        ("work:poolkeeper:reaped", "a sorted set"),
        ("work:poolkeeper:claims", "a hash"),
        ("work:poolkeeper:totals", "a hash"),
    ] {
        fixture.line::<()>(&format!("SET {key} x")).await;
        let failure = Observer::default().observe(&fixture.work).await.unwrap_err();
        assert_eq!(failure.reason, Reason::WrongType, "{failure}");
        let says = format!("WRONGTYPE key \"{key}\" in Redis should be {should_be}: rename or delete");
        assert!(failure.message.contains(&says), "{failure}");
        fixture.line::<()>(&format!("DEL {key}")).await;
    }
    for (key, should_be) in [("work:poolkeeper:fences", "a hash"), ("work:poolkeeper:schema", "a string")] {
        fixture.line::<()>(&format!("DEL {key}")).await;
        fixture.line::<()>(&format!("RPUSH {key} x")).await;
        let error = fixture.work.fence(FenceOp::Advance).await.unwrap_err().to_string();
        assert!(error.contains(&format!("key \"{key}\" in Redis should be {should_be}")), "{error}");
        fixture.line::<()>(&format!("DEL {key}")).await;
    }
}

#[tokio::test]
async fn the_age_of_the_next_job_is_read_only_where_it_is_certain() {
    let mut fixture = Fixture::new().await;
    fixture.line::<()>("SADD work:known_jobs a").await;
    for (body, at) in [
        (r#"{"name":"a","id":"1","t":5,"args":{"t":7}}"#, Some(5)),
        (r#"{"args":{"x":1},"t":6,"name":"a","id":"1"}"#, Some(6)),
        (r#"{"args":{"t":7},"t":6,"name":"a","id":"1"}"#, None),
        ("not JSON", None),
    ] {
        fixture.line::<()>("DEL work:jobs:a").await;
        run::<(), _>(&mut fixture.redis, ["LPUSH", "work:jobs:a", body]).await;
        let seen = fixture.observe().await;
        assert_eq!(seen.job_types[&job_type("a")].oldest_enqueued_at, at.map(EpochSeconds), "{body}");
    }
}

#[tokio::test]
async fn a_replica_is_not_observed() {
    let mut fixture = Fixture::new().await;
    fixture.observe().await;
    fixture.line::<()>("REPLICAOF 127.0.0.1 1").await;
    let failure = Observer::default().observe(&fixture.work).await.unwrap_err();
    assert_eq!(failure.reason, Reason::ReadOnly);
}

#[tokio::test]
async fn a_sweep_finds_lists_that_nothing_names() {
    for namespace in ["work", "", "{a*b}[c]", "x:"] {
        let fixture = Fixture::new().await;
        let work = GocraftWork::new(fixture.server.client(), Namespace::new(namespace), speaker("u1", 1));
        let keys = work.keys().clone();
        let mut redis = fixture.redis.clone();
        let list = String::from_utf8(keys.in_progress(&job_type("a:b"), &"D".into())).unwrap();
        run::<(), _>(&mut redis, ["LPUSH", &list, "x"]).await;
        run::<(), _>(&mut redis, ["LPUSH", "{aXb}[c]:jobs:other:D:inprogress", "x"]).await;
        for filler in 0..2_500 {
            run::<(), _>(&mut redis, ["SET", &format!("filler:{filler}"), "x"]).await;
        }
        let (mut sweep, mut observer, mut steps) = (Sweep::default(), Observer::default(), 0);
        while !sweep.is_complete() {
            observer.add_lists(sweep.step(&work).await.unwrap());
            steps += 1;
        }
        assert!(steps > 1);
        assert!(sweep.step(&work).await.unwrap().is_empty(), "no second round within a minute");
        let seen = observer.observe(&work).await.unwrap();
        assert_eq!(seen.job_types[&job_type("a:b")].in_progress, [("D".into(), 1)].into(), "{namespace}");
        assert!(seen.pools.contains_key("D"));
    }
}

/// C15, C25: another database, braces in the namespace.
#[tokio::test]
async fn another_database_and_braces_are_kept() {
    let fixture = Fixture::new().await;
    let mut redis = fixture.redis.clone();
    run::<(), _>(&mut redis, ["SELECT", "2"]).await;
    run::<(), _>(&mut redis, ["SADD", "{harbor}:known_jobs", "mail"]).await;
    run::<(), _>(&mut redis, ["LPUSH", "{harbor}:jobs:mail", "x"]).await;
    let mut endpoint = fixture.server.endpoint();
    endpoint.database = 2;
    let client = poolkeeper::redis::Client::new(endpoint);
    let work = GocraftWork::new(client, Namespace::new("{harbor}"), speaker("u1", 1));
    let seen = Observer::default().observe(&work).await.unwrap();
    assert_eq!(seen.job_types[&job_type("mail")].waiting, 1);
}
