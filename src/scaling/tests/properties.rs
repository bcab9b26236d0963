//! What holds of every decision, whatever the facts.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::stage::{Stage, job_type, pod};
use crate::scaling::pods::{BUSY_COST, HIGHEST_COST};
use crate::scaling::{Decision, JobTypeFacts, PodFacts, PodPhase, Rules, Step, TargetKind, Unread};

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0), 12 => 0..60_u64, 4 => 0..2000_u64, 1 => Just(u64::MAX)]
}

fn types() -> impl Strategy<Value = Vec<JobTypeFacts>> {
    let one = (
        (count(), count(), 0..40_u64, prop::option::of(1..50_u64), 0..60_u64),
        (prop::bool::weighted(0.2), prop::option::of(0..120_u64), prop::bool::weighted(0.1)),
    );
    let facts =
        |((waiting, due, running, cap, locks), (paused, oldest_wait, spoiled)): (_, (_, _, bool))| JobTypeFacts {
            waiting,
            due,
            running,
            cap,
            locks,
            paused,
            oldest_wait: Option::map(oldest_wait, Duration::from_secs),
            unread: spoiled.then_some(Unread::JobType),
            ..job_type("mail")
        };
    prop::collection::vec(one.prop_map(facts), 0..4)
}

fn pods() -> impl Strategy<Value = Vec<PodFacts>> {
    let phase = prop_oneof![
        8 => Just(PodPhase::Ready),
        1 => Just(PodPhase::Pending),
        1 => Just(PodPhase::NotReady),
        1 => Just(PodPhase::Terminating),
    ];
    let cost = prop_oneof![
        Just(None),
        Just(Some(BUSY_COST)),
        prop::sample::select(vec![-1, 7, BUSY_COST - 1, BUSY_COST + 1, HIGHEST_COST]).prop_map(Some),
    ];
    let one = (prop::bool::weighted(0.4), prop::bool::weighted(0.05), phase, cost, prop::bool::weighted(0.02));
    prop::collection::vec(one, 0..12).prop_map(|all| {
        let facts = |(index, (runs, unsure, phase, deletion_cost, newer)): (usize, _)| PodFacts {
            running: u64::from(runs),
            unsure,
            phase,
            deletion_cost,
            revision: Some(if newer { "newer" } else { "older" }.into()),
            ..pod(&format!("mail-{index}"))
        };
        all.into_iter().enumerate().map(facts).collect()
    })
}

fn rules() -> impl Strategy<Value = Rules> {
    (
        (0..4_i32, 0..25_i32, prop::option::of(1..30_u32), prop::option::of(0..60_u64)),
        (prop::sample::select(vec![0, 20, 300]), prop::option::of(1..6_u32), any::<bool>()),
    )
        .prop_map(|((min, more, jobs_per_replica, max_wait), (stabilization, max_up_per_minute, protect_busy))| {
            Rules {
                min,
                max: min + more,
                jobs_per_replica,
                max_wait: max_wait.map(Duration::from_secs),
                stabilization: Duration::from_secs(stabilization),
                max_up_per_minute,
                protect_busy,
            }
        })
}

/// A stage with a past: looks some seconds apart, at other backlogs, carried out or not.
fn stage() -> impl Strategy<Value = Stage> {
    let kind = prop_oneof![
        3 => Just(TargetKind::Replicas),
        1 => Just(TargetKind::Ordinal { first: 0 }),
        1 => Just(TargetKind::Other),
    ];
    let past = prop::collection::vec((1..90_u64, 0..200_u64, any::<bool>()), 0..12);
    (
        (types(), pods(), rules(), past),
        (0..25_i32, any::<bool>(), 0..12_u32, kind, prop::bool::weighted(0.8), prop::bool::weighted(0.1)),
    )
        .prop_map(
            |((types, pods, rules, past), (current, as_many, concurrency, kind, pods_known, rolling_out))| {
                let mut stage = Stage { concurrency, kind, rules, ..Stage::new(current) };
                for (pause, waiting, carried_out) in past {
                    stage.mail().waiting = waiting;
                    let decision = stage.look();
                    if carried_out {
                        stage.carry_out(&decision);
                    }
                    stage.wait(pause);
                }
                let live = i32::try_from(pods.iter().filter(|pod| pod.is_live()).count()).unwrap();
                let current = if as_many { live } else { current };
                Stage { types, pods, pods_known, current, rolling_out, ..stage }
            },
        )
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 2000, rng_seed: RngSeed::Fixed(23), failure_persistence: None, ..ProptestConfig::default() }
}

fn busy_count(stage: &Stage) -> i32 {
    i32::try_from(stage.pods.iter().filter(|pod| pod.is_busy()).count()).unwrap()
}

/// Those that go when a target is lowered, as its controller chooses them; of equal ones the busy first.
fn goners(stage: &Stage, to: i32) -> Vec<PodFacts> {
    let mut live: Vec<PodFacts> = stage.pods.iter().filter(|pod| pod.is_live()).cloned().collect();
    let to = usize::try_from(to).unwrap();
    match stage.kind {
        TargetKind::Replicas => live.sort_by_key(|pod| {
            let phase = [PodPhase::Pending, PodPhase::NotReady, PodPhase::Ready];
            let phase = phase.iter().position(|one| *one == pod.phase);
            (phase, pod.deletion_cost.unwrap_or(0), !pod.is_busy())
        }),
        TargetKind::Ordinal { .. } => {
            return live.into_iter().filter(|pod| pod.ordinal().unwrap() >= i32::try_from(to).unwrap()).collect();
        }
        TargetKind::Other => live.sort_by_key(|pod| !pod.is_busy()),
    }
    live.truncate(live.len().saturating_sub(to));
    live
}

/// The stage after a decision was looked at, for another one on the same past.
fn decided(stage: &Stage) -> Decision {
    stage.clone().look()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn desired_is_within_bounds_and_a_step_leads_towards_it(stage in stage()) {
        let decision = decided(&stage);
        prop_assert_eq!(&decision, &decided(&stage), "the same facts and history give the same answer");
        prop_assert!((stage.rules.min..=stage.rules.max).contains(&decision.desired));
        if let Step::Scale(to) = decision.step {
            prop_assert_ne!(to, stage.current);
            if to > stage.current {
                prop_assert!(to <= decision.desired && to <= stage.rules.max);
            } else {
                prop_assert!(to >= decision.desired);
            }
        }
        prop_assert!(!decision.reason.is_empty() && decision.reason.len() < 300);
    }

    #[test]
    fn with_protection_no_step_ends_a_busy_pod(stage in stage()) {
        let stage = Stage { rules: Rules { protect_busy: true, ..stage.rules.clone() }, ..stage };
        if let Step::Scale(to) = decided(&stage).step
            && to < stage.current
        {
            prop_assert!(to >= busy_count(&stage));
            let gone = goners(&stage, to);
            prop_assert!(!gone.iter().any(PodFacts::is_busy), "to {}: {:?}", to, gone);
        }
    }

    #[test]
    fn marks_are_for_live_pods_of_a_deployment_alone_and_come_to_an_end(stage in stage()) {
        let mut stage = stage;
        for _ in 0..3 {
            let Step::MarkBusy { costs } = decided(&stage).step else { return Ok(()) };
            prop_assert!(!costs.is_empty() && stage.kind == TargetKind::Replicas && stage.rules.protect_busy);
            for pod in &stage.pods {
                if let Some(cost) = costs.get(&crate::scaling::PodUid(pod.uid.clone())) {
                    prop_assert!(pod.is_live() && pod.deletion_cost != *cost && pod.is_busy() == cost.is_some());
                }
            }
            stage.mark(&costs);
        }
        prop_assert!(false, "it marks for ever");
    }

    #[test]
    fn more_backlog_never_asks_for_less(stage in stage(), which in 0..4_usize, more in 1..300_u64, as_due in any::<bool>()) {
        prop_assume!(!stage.types.is_empty());
        let which = which % stage.types.len();
        let mut fuller = stage.clone();
        let backlog = if as_due { &mut fuller.types[which].due } else { &mut fuller.types[which].waiting };
        *backlog = backlog.saturating_add(more);
        prop_assert!(decided(&fuller).desired >= decided(&stage).desired);
    }

    #[test]
    fn never_more_than_caps_let_run(stage in stage()) {
        let mut stage = stage;
        stage.rules.stabilization = Duration::ZERO;
        stage.types.iter_mut().for_each(|one| one.cap = Some(one.cap.unwrap_or(3)));
        let caps: u64 = stage.types.iter().filter_map(|one| one.cap).sum();
        let pods = i32::try_from(caps.div_ceil(u64::from(stage.concurrency.max(1)))).unwrap();
        prop_assert!(decided(&stage).desired <= stage.rules.min.max(pods));
    }

    #[test]
    fn what_is_not_known_is_never_zero(stage in stage()) {
        let decision = decided(&stage);
        let unread = stage.types.iter().any(|one| one.unread.is_some());
        if unread && stage.current > 0 && stage.rules.max > 0 {
            prop_assert!(decision.desired > 0 && decision.step != Step::Scale(0));
        }
        if let (Step::Scale(to), false) = (&decision.step, stage.pods_known) {
            prop_assert!(*to > stage.current);
        }
    }
}

// Over many looks each.
proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..config() })]

    #[test]
    fn within_any_60_seconds_no_more_is_added_than_allowed(stage in stage(), waiting in prop::collection::vec(0..300_u64, 150)) {
        let mut stage = stage;
        let bound = stage.rules.max_up_per_minute.unwrap_or(4);
        stage.rules.max_up_per_minute = Some(bound);
        stage.rules.min = 0;
        stage.rules.protect_busy = false;
        stage.types = vec![job_type("mail")];
        let mut added = Vec::new();
        for (second, waiting) in waiting.into_iter().enumerate() {
            stage.mail().waiting = waiting;
            let before = stage.current;
            let after = stage.turn();
            added.push(u32::try_from(after - before).unwrap_or(0));
            let last_minute: u32 = added[(second + 1).saturating_sub(60)..].iter().sum();
            prop_assert!(last_minute <= bound + 1, "{} at {}", last_minute, second);
            stage.wait(1);
        }
    }

    #[test]
    fn before_the_next_change_nothing_changes(stage in stage()) {
        let mut stage = stage;
        let first = stage.look();
        let quiet = first.next_change.map_or(400, |after| after.as_secs());
        for second in 1..quiet {
            stage.wait(1);
            let now = stage.look();
            prop_assert_eq!((now.desired, &now.step), (first.desired, &first.step), "at {} of {}", second, quiet);
        }
    }

    /// "No flapping": within a window, at most one change of direction; once it went up, it does not go down.
    #[test]
    fn a_steady_load_with_noise_does_not_flap(
        load in 1..150_u64,
        noise in prop::collection::vec(-20..=20_i64, 1000),
        rules in rules(),
        current in 0..20_i32,
        window in 1..400_u64,
    ) {
        let mut stage = Stage { rules, ..Stage::new(current) };
        stage.rules.stabilization = Duration::from_secs(window);
        let (mut last_raise, mut steps): (Option<u64>, Vec<(u64, i32)>) = (None, Vec::new());
        for (second, noise) in (0_u64..).zip(noise) {
            stage.mail().waiting = load.saturating_add_signed(load as i64 * noise / 100);
            let (before, after) = (stage.current, stage.turn());
            if after > before {
                last_raise = Some(second);
            }
            if after < before && let Some(raised) = last_raise {
                prop_assert!(second - raised >= window, "raised at {}, lowered at {}", raised, second);
            }
            if after != before {
                steps.push((second, (after - before).signum()));
            }
            stage.wait(1);
        }
        for (index, (from, _)) in steps.iter().enumerate() {
            let within = steps[index..].iter().take_while(|(second, _)| second - from < window);
            let directions: Vec<i32> = within.map(|(_, direction)| *direction).collect();
            let changes = directions.windows(2).filter(|pair| pair[0] != pair[1]).count();
            prop_assert!(changes <= 1, "from {}: {:?}", from, directions);
        }
    }
}
