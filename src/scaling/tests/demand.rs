//! How many replicas the jobs ask for.

use std::time::Duration;

use super::stage::{job_type, rules};
use crate::scaling::{JobTypeFacts, Rules, Unread, demand, runnable};

fn waiting(name: &str, waiting: u64) -> JobTypeFacts {
    JobTypeFacts { waiting, ..job_type(name) }
}

fn capped(waiting: u64, cap: u64) -> JobTypeFacts {
    JobTypeFacts { waiting, cap: Some(cap), ..job_type("capped") }
}

#[test]
fn runnable_is_due_and_not_blocked_by_its_cap() {
    let table = [
        ("nothing", job_type("a"), 0),
        ("waiting and due", JobTypeFacts { due: 3, ..waiting("a", 4) }, 7),
        ("paused", JobTypeFacts { paused: true, ..waiting("a", 4) }, 0),
        ("below the cap", capped(4, 10), 4),
        ("cap, none running", capped(40, 10), 10),
        ("cap, some running", JobTypeFacts { locks: 7, running: 7, ..capped(40, 10) }, 3),
        ("cap, taken by others", JobTypeFacts { locks: 10, ..capped(40, 10) }, 0),
        ("cap lowered below what runs", JobTypeFacts { locks: 12, ..capped(40, 10) }, 0),
        ("due alone, capped", JobTypeFacts { due: 9, ..capped(0, 5) }, 5),
        ("more than can be counted", JobTypeFacts { due: u64::MAX, ..waiting("a", u64::MAX) }, u64::MAX),
    ];
    for (name, facts, expected) in table {
        assert_eq!(runnable(&facts), expected, "{name}");
    }
}

/// Name, job types, `jobsPerReplica`, concurrency, replicas, useful replicas.
type Row = (&'static str, Vec<JobTypeFacts>, Option<u32>, u32, i32, i32);

#[test]
fn replicas_follow_from_runnable_and_running_jobs_as_far_as_caps_let_them_run() {
    let running = |running: u64| JobTypeFacts { running, ..job_type("running") };
    let table: Vec<Row> = vec![
        ("no types", vec![], None, 10, 0, 0),
        ("nothing to do", vec![job_type("a")], None, 10, 0, 0),
        ("one job", vec![waiting("a", 1)], None, 10, 1, 1),
        ("a full replica", vec![waiting("a", 10)], None, 10, 1, 10),
        ("one more", vec![waiting("a", 11)], None, 10, 2, 11),
        ("running jobs count", vec![running(8)], None, 4, 2, 8),
        ("and add to runnable ones", vec![JobTypeFacts { waiting: 8, ..running(8) }], None, 4, 4, 16),
        (
            "running jobs of a paused type count",
            vec![JobTypeFacts { paused: true, waiting: 9, ..running(8) }],
            None,
            4,
            2,
            8,
        ),
        ("by jobsPerReplica where it is set", vec![waiting("a", 100)], Some(50), 10, 2, 100),
        ("no concurrency counts as one", vec![waiting("a", 3)], None, 0, 3, 3),
        ("fractions add up", vec![waiting("a", 5), waiting("b", 5)], None, 10, 1, 10),
        ("before they are rounded", vec![waiting("a", 5), waiting("b", 6)], None, 10, 2, 11),
        ("10 jobs at once need no 20 pods of 10", vec![capped(200, 10)], Some(1), 10, 1, 1),
        ("a cap of 25 needs 3 pods of 10", vec![capped(500, 25)], None, 10, 3, 3),
        ("caps add up exactly", vec![capped(50, 5), capped(50, 5)], Some(1), 10, 1, 1),
        ("a capped and an uncapped type", vec![capped(500, 5), waiting("b", 15)], None, 10, 2, 16),
        ("a cap above the backlog does not count", vec![capped(15, 1000)], None, 10, 2, 15),
        (
            "jobs blocked by the cap ask for nothing",
            vec![JobTypeFacts { locks: 10, ..capped(500, 10) }],
            None,
            10,
            0,
            0,
        ),
        ("a lowered cap drains", vec![JobTypeFacts { locks: 40, running: 40, ..capped(0, 10) }], None, 10, 1, 1),
        ("a large ratio", vec![capped(500, 25)], Some(1000), 10, 1, 3),
        ("counts without end", vec![waiting("a", u64::MAX); 3], Some(1), 1, i32::MAX, i32::MAX),
        ("and caps", vec![capped(u64::MAX, u64::MAX); 3], Some(u32::MAX), u32::MAX, i32::MAX, i32::MAX),
    ];
    for (name, types, jobs_per_replica, concurrency, replicas, useful) in table {
        let found = demand(&types, &Rules { jobs_per_replica, ..rules() }, concurrency);
        assert_eq!((found.replicas, found.useful), (replicas, useful), "{name}");
    }
}

#[test]
fn thirds_add_up_to_a_whole() {
    // 30 times a third, and 7 times a seventh of a cap: 11 and no more.
    let mut types = vec![waiting("a", 1); 30];
    types.extend(vec![capped(100, 1); 7]);
    let found = demand(&types, &Rules { jobs_per_replica: Some(3), ..rules() }, 7);
    assert_eq!(found.replicas, 11);
}

#[test]
fn what_is_kept_from_running_is_told_by_its_cause() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let types = [
        JobTypeFacts { oldest_wait: seconds(5), due: 1, ..waiting("a", 2) },
        JobTypeFacts { oldest_wait: seconds(90), locks: 8, running: 2, ..capped(30, 10) },
        JobTypeFacts { oldest_wait: seconds(900), paused: true, running: 1, ..waiting("b", 40) },
        JobTypeFacts { oldest_wait: seconds(700), locks: 5, ..capped(50, 5) },
        JobTypeFacts { unread: Some(Unread::JobType), ..job_type("c") },
    ];
    let found = demand(&types, &rules(), 10);
    assert_eq!((found.runnable, found.running), (5, 3));
    assert_eq!((found.blocked_by_cap, found.paused), (28 + 50, 40));
    assert_eq!(found.oldest_wait, seconds(90), "of types with runnable jobs");
    assert!(found.incomplete);
    assert!(!demand(&types[..4], &rules(), 10).incomplete);
}
