//! When a container is ruled out, and when its end is a proof, by whole seconds of one node's clock.

use std::time::{Duration, Instant};

use super::*;
use crate::protocol::ConnectionId;
use crate::reaper::container::End;

fn contender(id: &str, earliest_start: Option<i64>, fate: Fate) -> Contender {
    let place = Place {
        namespace: "n".into(),
        pod: "p".into(),
        pod_uid: "u".into(),
        container: "worker".into(),
        container_id: id.into(),
    };
    Contender { place, earliest_start: earliest_start.map(EpochSeconds), fate }
}

fn ended(finished_at: Option<i64>, seen: Instant) -> Fate {
    let end = End { finished_at: finished_at.map(EpochSeconds), reason: "Error".into(), exit_code: Some(1) };
    Fate::Ended { end, seen }
}

#[test]
fn a_pool_started_between_the_start_and_the_end_of_its_container() {
    let now = Instant::now();
    let replaced = |before: Option<i64>| Fate::Replaced { before: before.map(EpochSeconds), seen: now };
    // Earliest start and fate of a container; whether it can't be that of a pool that started at 100, and whether its end is proof.
    let table = [
        (Some(100), Fate::Running, false, false),
        (Some(101), Fate::Running, true, false),
        (None, Fate::Running, false, false),
        (Some(90), ended(Some(101), now), false, true),
        (Some(90), ended(Some(100), now), false, false),
        (Some(90), ended(Some(99), now), true, false),
        (Some(90), ended(None, now), false, false),
        (Some(90), replaced(Some(103)), false, true),
        (Some(90), replaced(Some(102)), false, false),
        (Some(90), replaced(Some(100)), false, false),
        (Some(90), replaced(Some(99)), true, false),
        (Some(90), replaced(None), false, false),
        (Some(90), Fate::PodEnded { reason: "Evicted".into(), seen: now }, false, true),
    ];
    for (start, fate, excluded, proven) in table {
        let one = contender("a", start, fate);
        assert_eq!(one.excluded(EpochSeconds(100)), excluded, "excluded: {one:?}");
        assert_eq!(one.proven(EpochSeconds(100)), proven, "proven: {one:?}");
    }
}

#[test]
fn exactly_one_running_container_is_bound_and_several_are_kept() {
    let now = Instant::now();
    let mut moved = Silence::first(now, ConnectionId(1), Some(EpochSeconds(1)));
    moved.read(now + Duration::from_secs(1), ConnectionId(1), Some(EpochSeconds(2)));
    let running = |id| contender(id, Some(90), Fate::Running);
    let late = contender("late", Some(101), Fate::Running);
    let hosted =
        |running: &[&Contender]| Hosted { running: running.iter().copied().cloned().collect(), ..Hosted::default() };
    let ids = |existing: &[&Contender], hosted: &Hosted| {
        let existing: Vec<Contender> = existing.iter().copied().cloned().collect();
        let bound = bind(&existing, EpochSeconds(100), &moved, hosted)?;
        Some(bound.iter().map(|one| one.place.container_id.to_string()).collect::<Vec<_>>().join(" "))
    };
    let (a, b) = (running("a"), running("b"));
    let text = |ids: &str| Some(ids.to_string());
    assert_eq!(ids(&[], &hosted(&[&a])), text("a"));
    assert_eq!(ids(&[], &hosted(&[&late])), None);
    assert_eq!(ids(&[], &hosted(&[])), None);
    assert_eq!(ids(&[], &hosted(&[&a, &b, &late])), text("a b"));
    assert_eq!(ids(&[], &hosted(&[&a, &late])), text("a late"), "one of several is not exactly one");
    let elsewhere = Hosted { claimed_elsewhere: true, ..hosted(&[&a]) };
    assert_eq!(ids(&[], &elsewhere), None);
    let starting = Hosted { may_start: vec![("u".into(), "log".into())], ..hosted(&[&a, &b]) };
    assert_eq!(ids(&[], &starting), None, "the one that is not reported yet may be it");
    assert_eq!(ids(&[&a], &hosted(&[&b])), None, "a binding is not replaced while it may be right");
    let over = contender("a", Some(90), ended(Some(95), now));
    assert_eq!(ids(&[&over], &hosted(&[&b])), text("b"), "it ended before the pool started");
    assert_eq!(ids(&[&over, &b], &hosted(&[&b])), text("b"), "the other one is ruled out");
    assert_eq!(ids(&[&a, &b], &hosted(&[&b])), None, "the other one is not ruled out");
}
