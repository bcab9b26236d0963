//! What a status says, by what is known.

use super::*;
use crate::protocol::{ConnectionId, EpochSeconds};

fn observation(jobs: &[(&str, JobTypeSeen)]) -> Observation {
    Observation {
        redis_time: EpochSeconds(1_000),
        connection: ConnectionId(1),
        pools: BTreeMap::new(),
        job_types: jobs.iter().map(|(name, seen)| (JobTypeName::from(*name), seen.clone().into())).collect(),
        bindings: BTreeMap::new(),
        reaped: BTreeMap::new(),
        claims: Vec::new(),
        totals: BTreeMap::from([
            ("jobs_requeued".into(), 7),
            ("caps_overwritten".into(), 2),
            ("pauses_overwritten".into(), 1),
        ]),
        ..Observation::default()
    }
}

struct Known {
    halt: Option<Halt>,
    redis: State<()>,
    caps: State<Holding>,
    workers: State<Workers>,
    observation: Option<Observation>,
    scaling: Option<(State<Option<String>>, Option<ScalingStatus>)>,
}

impl Known {
    fn good() -> Self {
        Self {
            halt: None,
            redis: State::Good(()),
            caps: State::Good(Holding::Tracked),
            workers: State::Good(Workers::Pods { replicas: 3, selector: "app=w".into() }),
            observation: Some(observation(&[(
                "mail",
                JobTypeSeen { waiting: 5, lock: 1, cap: Some(2), ..JobTypeSeen::default() },
            )])),
            scaling: None,
        }
    }

    fn status(&self, before: &JobQueueStatus) -> JobQueueStatus {
        let own_types = BTreeSet::from([JobTypeName::from("mail")]);
        let facts = Facts {
            generation: 4,
            now: Timestamp::from_second(99).unwrap(),
            halt: self.halt,
            redis: &self.redis,
            caps: &self.caps,
            workers: &self.workers,
            observation: self.observation.as_ref(),
            own_types: &own_types,
            mismatches: &BTreeMap::new(),
            pools: PoolCounts::default(),
            unresponsive: None,
            scaling: self.scaling.clone(),
            last_reap: None,
            recorded_through: None,
        };
        status(&facts, before)
    }

    /// Ready, Reconciling and Stalled, and the reason of Ready.
    fn summary(&self) -> (String, String, String, String) {
        let status = self.status(&JobQueueStatus::default());
        let of = |type_: &str| status.conditions.iter().find(|c| c.type_ == type_).unwrap().clone();
        (of(READY).status, of(RECONCILING).status, of(STALLED).status, of(READY).reason)
    }
}

fn bad(reason: &str, stalled: bool) -> Problem {
    Problem { reason: reason.into(), message: "because".into(), stalled }
}

#[test]
fn ready_reconciling_and_stalled_say_the_same_as_the_rest() {
    let good = Known::good;
    for (what, known, expected) in [
        ("all well", good(), ("True", "False", "False", "AsSpecified")),
        (
            "nothing known",
            Known { redis: State::Pending, caps: State::Pending, observation: None, ..good() },
            ("False", "True", "False", "FirstPass"),
        ),
        ("caps on their way", Known { caps: State::Pending, ..good() }, ("False", "True", "False", "FirstPass")),
        (
            "Redis away",
            Known { redis: State::Bad(bad("ConnectionRefused", false)), ..good() },
            ("False", "True", "False", "ConnectionRefused"),
        ),
        (
            "a wrong key type",
            Known { caps: State::Bad(bad("WrongKeyType", true)), ..good() },
            ("False", "False", "True", "WrongKeyType"),
        ),
        (
            "no target",
            Known { workers: State::Bad(bad("TargetNotFound", true)), ..good() },
            ("False", "False", "True", "TargetNotFound"),
        ),
        (
            "Redis away and no target",
            Known {
                redis: State::Bad(bad("NoAnswer", false)),
                workers: State::Bad(bad("TargetNotFound", true)),
                ..good()
            },
            ("False", "True", "True", "NoAnswer"),
        ),
        ("paused", Known { halt: Some(Halt::Paused), ..good() }, ("False", "False", "False", "Paused")),
        ("leaving", Known { halt: Some(Halt::Deleting), ..good() }, ("False", "True", "False", "Deleting")),
    ] {
        let (ready, reconciling, stalled, reason) = known.summary();
        assert_eq!((ready.as_str(), reconciling.as_str(), stalled.as_str(), reason.as_str()), expected, "{what}");
    }
}

#[test]
fn every_condition_names_the_generation_it_is_about() {
    let status = Known::good().status(&JobQueueStatus::default());
    assert_eq!(status.observed_generation, Some(4));
    assert!(status.conditions.iter().all(|condition| condition.observed_generation == Some(4)));
}

#[test]
fn c23_what_is_not_known_is_not_reported_as_zero() {
    let before = Known::good().status(&JobQueueStatus::default());
    let away = Known {
        redis: State::Bad(bad("NoAnswer", false)),
        caps: State::Bad(bad("NoAnswer", false)),
        workers: State::Bad(bad("TargetUnreadable", false)),
        observation: None,
        ..Known::good()
    };
    let after = away.status(&before);
    assert_eq!((after.waiting, after.replicas, &after.jobs), (5, 3, &before.jobs));
    assert_eq!(after.selector, before.selector);
}

#[test]
fn counts_come_out_of_one_read() {
    let status = Known::good().status(&JobQueueStatus::default());
    assert_eq!((status.waiting, status.runnable, status.running, status.replicas), (5, 1, 0, 3));
    assert_eq!((status.totals.jobs_requeued, status.totals.caps_overwritten), (7, 3));
}

#[test]
fn runnable_is_what_could_start_now() {
    for (what, waiting, cap, lock, paused, expected) in [
        ("no cap", 5, None, 3, false, 5),
        ("cap 0 is no cap", 5, Some(0), 3, false, 5),
        ("below the cap", 5, Some(4), 3, false, 1),
        ("few wait", 1, Some(9), 3, false, 1),
        ("at the cap", 5, Some(3), 3, false, 0),
        ("above a lowered cap", 5, Some(1), 3, false, 0),
        ("c11: paused", 5, None, 0, true, 0),
    ] {
        let seen = JobTypeSeen { waiting, lock, cap, paused, ..JobTypeSeen::default() };
        assert_eq!(runnable(&seen), expected, "{what}");
    }
}

#[test]
fn scaling_is_reported_only_where_it_is_asked_for() {
    let decided = ScalingStatus { desired_replicas: 3, reason: "r".into(), ..ScalingStatus::default() };
    let of = |status: &JobQueueStatus| status.conditions.iter().find(|c| c.type_ == SCALING_ACTIVE).cloned();
    let before = JobQueueStatus {
        scaling: Some(ScalingStatus { last_scale_time: Some(Timestamp::UNIX_EPOCH), ..ScalingStatus::default() }),
        ..JobQueueStatus::default()
    };
    let mut known = Known::good();
    for (what, redis, state, ready, reason) in [
        ("all is well", State::Good(()), State::Good(None), "True", "FollowsTheWork"),
        ("a right is missing", State::Good(()), State::Good(Some("x".into())), "True", "AutoscalersForbidden"),
        ("not decided yet", State::Good(()), State::Pending, "True", "FirstPass"),
        ("a rival", State::Good(()), State::Bad(bad("ScaledByAnother", true)), "False", "ScaledByAnother"),
        ("Redis away", State::Bad(bad("Loading", false)), State::Good(None), "False", "Loading"),
    ] {
        known.redis = redis;
        known.scaling = Some((state, Some(decided.clone())));
        let next = known.status(&before);
        let condition = of(&next).unwrap();
        assert_eq!((condition.reason.as_str(), next.conditions[0].status.as_str()), (reason, ready), "{what}");
        let scaling = next.scaling.unwrap();
        assert_eq!(scaling.desired_replicas, 3);
        assert_eq!(
            scaling.last_scale_time,
            Some(Timestamp::UNIX_EPOCH),
            "what was done before a restart is still told"
        );
    }
    known.scaling = None;
    let without = known.status(&before);
    assert!(of(&without).is_none() && without.scaling.is_none());
}

#[test]
fn a_key_of_a_wrong_type_is_named_with_the_type_that_it_should_have() {
    let mut known = Known::good();
    let spoiled = JobTypeSeen { spoiled: Some("work:jobs:mail".into()), ..JobTypeSeen::default() };
    known.observation = Some(observation(&[("mail", spoiled.clone()), ("others", spoiled)]));
    let status = known.status(&JobQueueStatus::default());
    let advice = r#"key "work:jobs:mail" in Redis should be a list: delete it, or rename what uses it"#;
    assert_eq!(status.jobs[0].problem.as_deref(), Some(advice));
    let locks = status.conditions.iter().find(|c| c.type_ == LOCKS_CONSISTENT).unwrap();
    assert_eq!((locks.status.as_str(), locks.reason.as_str()), ("False", "WrongKeyType"));
    assert_eq!(locks.message, format!("{advice}; locks of other job types are looked after"));
}
