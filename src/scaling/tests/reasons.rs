//! What is said.

use std::time::Duration;

use super::stage::{Stage, busy, job_type};
use crate::scaling::{JobTypeFacts, Limit, Unread};

type Change = fn(&mut Stage);

#[test]
fn each_decision_says_why_in_numbers() {
    let table: [(i32, Change, &str); 16] = [
        (2, |stage| stage.mail().waiting = 15, "the jobs ask for 2 replicas"),
        (0, |_| {}, "no job runs or could run"),
        (0, |stage| stage.mail().waiting = 1, "1 runnable and 0 running jobs ask for 1 replica"),
        (
            0,
            |stage| (stage.mail().waiting, stage.mail().running) = (500, 1),
            "500 runnable and 1 running jobs ask for 51 replicas; maxReplicas is 20",
        ),
        (20, |stage| stage.mail().waiting = 501, "the jobs ask for 51 replicas; maxReplicas is 20"),
        (0, |stage| stage.rules.min = 2, "no job runs or could run; minReplicas is 2"),
        (
            0,
            |stage| (stage.mail().waiting, stage.rules.max_up_per_minute) = (50, Some(3)),
            "50 runnable and 0 running jobs ask for 5 replicas; maxScaleUpPerMinute is 3",
        ),
        (6, |_| {}, "no job runs or could run; kept at 6 replicas until no more are needed for 300 s"),
        (
            2,
            |stage| {
                stage.rules.max_wait = Some(Duration::from_secs(30));
                (stage.mail().waiting, stage.mail().oldest_wait) = (15, Some(Duration::from_secs(31)));
            },
            "the oldest runnable job has waited longer than 30 s, which asks for 3 replicas",
        ),
        (
            3,
            |stage| {
                stage.rules.stabilization = Duration::ZERO;
                stage.types.push(job_type("report"));
                stage.types[1].unread = Some(Unread::JobType);
            },
            "no job is seen, but not all of job type \"report\" can be read; 1 replica stays",
        ),
        (
            3,
            |stage| {
                stage.rules.stabilization = Duration::ZERO;
                stage.types.push(JobTypeFacts { unread: Some(Unread::Set), ..job_type("work:retry") });
            },
            "no job is seen, but \"work:retry\" can't be read; 1 replica stays",
        ),
        (
            3,
            |stage| {
                stage.rules.stabilization = Duration::ZERO;
                stage.types.push(JobTypeFacts { unread: Some(Unread::DueEntries), ..job_type("") });
            },
            "no job is seen, but not all due entries were looked at yet; 1 replica stays",
        ),
        (
            3,
            |stage| (stage.rules.stabilization, stage.pods_known) = (Duration::ZERO, false),
            "no job runs or could run; nothing is lowered while the pods are not known",
        ),
        (
            3,
            |stage| (stage.rules.stabilization, stage.rolling_out) = (Duration::ZERO, true),
            "no job runs or could run; nothing is lowered during a rollout",
        ),
        (
            3,
            |stage| {
                stage.rules.stabilization = Duration::ZERO;
                (stage.pods[0], stage.mail().running) = (busy("mail-0"), 1);
            },
            "0 runnable and 1 running jobs ask for 1 replica; pods are marked first, so that idle ones go",
        ),
        (
            1,
            |stage| (stage.rules.stabilization, stage.pods[0]) = (Duration::ZERO, busy("mail-0")),
            "no job runs or could run; waits for 1 busy pod",
        ),
    ];
    for (current, change, expected) in table {
        let mut stage = Stage::new(current);
        change(&mut stage);
        assert_eq!(stage.look().reason, expected);
    }
}

#[test]
fn while_nothing_is_done_the_sentence_does_not_change_with_every_job_or_second() {
    let mut stage = Stage::new(3);
    stage.mail().waiting = 21;
    let said = stage.look().reason;
    for waiting in 22..30 {
        stage.mail().waiting = waiting;
        assert_eq!(stage.watch(1).reason, said);
    }
}

#[test]
fn every_limit_has_a_name_of_its_own() {
    let all = [
        Limit::Min,
        Limit::Max,
        Limit::UpRate,
        Limit::Stabilization,
        Limit::UnreadJobType,
        Limit::PodsUnknown,
        Limit::BusyPods,
        Limit::BusyPodNotReady,
        Limit::Rollout,
    ];
    let names: std::collections::BTreeSet<_> = all.iter().map(|limit| limit.name()).collect();
    assert_eq!(names.len(), all.len());
}
