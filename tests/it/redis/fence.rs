//! fence.lua and the check in every writing script.

use poolkeeper::protocol::gocraft_work::cap::Desired;
use poolkeeper::protocol::gocraft_work::{FenceOp, Fenced, GocraftWork, ScriptError};

use super::fixture::{Fixture, dead, job_type, speaker};

fn speaking(fixture: &Fixture, uid: &str, generation: i64) -> GocraftWork {
    let mut work = fixture.work.clone();
    work.set_speaker(speaker(uid, generation));
    work
}

async fn refusal(work: &GocraftWork) -> Option<Fenced> {
    match work.settle(&job_type("a"), &dead(&["D"]), &[], 500).await {
        Ok(_) => None,
        Err(ScriptError::Fenced(fenced)) => Some(fenced),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn an_older_generation_is_refused_and_the_newest_advances_by_itself() {
    let fixture = Fixture::new().await;
    let (old, new) = (speaking(&fixture, "u1", 3), speaking(&fixture, "u1", 4));
    assert_eq!(refusal(&old).await, None);
    assert_eq!(refusal(&new).await, None);
    assert_eq!(refusal(&old).await, Some(Fenced::Older));
    assert_eq!(old.fence(FenceOp::Advance).await, Err(ScriptError::Fenced(Fenced::Older)));
    assert_eq!(refusal(&new).await, None);
}

#[tokio::test]
async fn a_new_uid_retires_the_one_before() {
    let fixture = Fixture::new().await;
    let (before, after) = (speaking(&fixture, "u1", 9), speaking(&fixture, "u2", 1));
    assert_eq!(refusal(&before).await, None);
    assert_eq!(refusal(&after).await, None);
    assert_eq!(refusal(&before).await, Some(Fenced::Retired));
    assert_eq!(before.fence(FenceOp::Advance).await, Err(ScriptError::Fenced(Fenced::Retired)));
}

#[tokio::test]
async fn deletion_retires_and_is_repeatable() {
    let fixture = Fixture::new().await;
    let (deleted, successor) = (speaking(&fixture, "u1", 1), speaking(&fixture, "u2", 1));
    assert_eq!(refusal(&deleted).await, None);
    for _ in 0..2 {
        deleted.fence(FenceOp::Retire).await.unwrap();
        assert_eq!(refusal(&deleted).await, Some(Fenced::Retired));
    }
    assert_eq!(refusal(&successor).await, None);
    deleted.fence(FenceOp::Retire).await.unwrap();
    assert_eq!(refusal(&successor).await, None);
}

#[tokio::test]
async fn a_held_resource_is_refused_until_it_is_resumed() {
    let mut fixture = Fixture::new().await;
    let work = speaking(&fixture, "u1", 2);
    for _ in 0..2 {
        work.fence(FenceOp::Hold).await.unwrap();
        assert_eq!(refusal(&work).await, Some(Fenced::Held));
    }
    work.fence(FenceOp::Advance).await.unwrap();
    assert_eq!(refusal(&work).await, Some(Fenced::Held));
    assert_eq!(refusal(&speaking(&fixture, "u1", 3)).await, Some(Fenced::Held));
    speaking(&fixture, "u1", 3).fence(FenceOp::Resume).await.unwrap();
    assert_eq!(refusal(&speaking(&fixture, "u1", 3)).await, None);
    let entry: String = fixture.line("HGET work:poolkeeper:fences home/JobQueue/default/mail").await;
    assert_eq!(entry, "u1 3 0 ");
}

#[tokio::test]
async fn keys_of_a_newer_version_are_left_alone() {
    let mut fixture = Fixture::new().await;
    fixture.line::<()>("SET work:poolkeeper:schema 2").await;
    assert_eq!(refusal(&fixture.work).await, Some(Fenced::Schema));
}

#[tokio::test]
async fn release_takes_back_what_is_still_ours_and_spares_a_successor() {
    let mut fixture = Fixture::new().await;
    let pushed: Vec<Desired> =
        ["a", "b"].map(|name| Desired { job_type: job_type(name), cap: Some(5), paused: Some(true) }).into();
    fixture.work.fence(FenceOp::Advance).await.unwrap();
    fixture.line::<()>("MSET work:jobs:a:max_concurrency 5 work:jobs:b:max_concurrency 7").await;
    fixture.line::<()>("MSET work:jobs:a:paused poolkeeper work:jobs:b:paused 1").await;
    fixture.line::<()>("HSET work:poolkeeper:claims home/default/mail {}").await;
    let released = fixture.work.release("home/default/mail", &pushed).await.unwrap();
    assert_eq!((released.caps, released.pauses), (1, 1));
    let left: Vec<String> = fixture.line("KEYS work:jobs:*").await;
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.iter().all(|key| key.starts_with("work:jobs:b:")), "{left:?}");
    assert_eq!(refusal(&fixture.work).await, Some(Fenced::Retired));

    let successor = speaking(&fixture, "u2", 1);
    successor.fence(FenceOp::Advance).await.unwrap();
    fixture.line::<()>("SET work:jobs:a:max_concurrency 5").await;
    fixture.line::<()>("HSET work:poolkeeper:claims home/default/mail {}").await;
    let released = fixture.work.release("home/default/mail", &pushed).await.unwrap();
    assert_eq!((released.caps, released.pauses), (0, 0));
    assert_eq!(fixture.line::<i64>("HLEN work:poolkeeper:claims").await, 1);
    assert_eq!(refusal(&successor).await, None);
}
