//! Busy pods on the way down.

use super::stage::{Stage, busy, marks, pod};
use crate::scaling::pods::{BUSY_COST, HIGHEST_COST};
use crate::scaling::{Limit, PodFacts, PodPhase, Step, TargetKind};

/// Five replicas of which the named ones are busy, and nothing that would hold them but that.
fn five(busy_ones: &[usize]) -> Stage {
    let mut stage = Stage::without_stabilization(5);
    for index in busy_ones {
        stage.pods[*index] = busy(&format!("mail-{index}"));
    }
    stage
}

fn marked(index: usize, cost: i32, stage: &mut Stage) {
    stage.pods[index].deletion_cost = Some(cost);
}

#[test]
fn busy_pods_are_marked_then_seen_with_it_and_only_then_it_is_lowered() {
    let mut stage = five(&[0, 3]);
    let expected = marks(&[("mail-0", Some(BUSY_COST)), ("mail-3", Some(BUSY_COST))]);
    assert_eq!(stage.look().step, expected);
    assert_eq!(stage.look().step, expected, "they were not seen with it yet");
    marked(0, BUSY_COST, &mut stage);
    assert_eq!(stage.look().step, marks(&[("mail-3", Some(BUSY_COST))]));
    marked(3, BUSY_COST, &mut stage);
    let decision = stage.look();
    assert_eq!((decision.desired, decision.step, decision.limited_by), (0, Step::Scale(2), Some(Limit::BusyPods)));
}

#[test]
fn a_pod_that_became_busy_meanwhile_is_marked_first() {
    let mut stage = five(&[0]);
    marked(0, BUSY_COST, &mut stage);
    stage.pods[2] = busy("mail-2");
    assert_eq!(stage.look().step, marks(&[("mail-2", Some(BUSY_COST))]));
}

#[test]
fn nothing_is_marked_unless_it_is_about_to_be_lowered() {
    let mut stage = five(&[0, 1]);
    stage.mail().waiting = 50;
    assert_eq!(stage.look().step, Step::Hold);
    let mut stage = five(&[0, 1, 2, 3, 4]);
    let decision = stage.look();
    assert_eq!((decision.desired, decision.step, decision.limited_by), (0, Step::Hold, Some(Limit::BusyPods)));
    assert_eq!(decision.reason, "no job runs or could run; waits for 5 busy pods");
}

#[test]
fn never_less_than_the_number_of_busy_pods_and_at_0_without_marks() {
    let mut stage = five(&[]);
    marked(1, BUSY_COST, &mut stage);
    assert_eq!(stage.look().step, Step::Scale(0), "all go: it does not matter which one first");
    let mut stage = five(&[]);
    stage.pods[4].unsure = true;
    marked(4, BUSY_COST, &mut stage);
    assert_eq!(stage.look().step, Step::Scale(1), "it may be busy");
    stage.pods[4].phase = PodPhase::Terminating;
    assert_eq!(stage.look().step, Step::Scale(0), "it goes anyway");
}

#[test]
fn max_below_the_busy_pods_is_desired_but_they_are_waited_for() {
    let mut stage = five(&[0, 1, 2]);
    stage.mail().waiting = 90;
    stage.rules.max = 2;
    (0..3).for_each(|index| marked(index, BUSY_COST, &mut stage));
    let decision = stage.look();
    assert_eq!((decision.desired, decision.step, decision.limited_by), (2, Step::Scale(3), Some(Limit::BusyPods)));
    assert!(decision.reason.ends_with("maxReplicas is 2; waits for 3 busy pods"), "{}", decision.reason);
}

#[test]
fn marks_that_are_left_over_stay_while_unmarked_idle_pods_can_go() {
    let mut stage = five(&[0]);
    stage.mail().waiting = 20;
    for index in [0, 1, 2] {
        marked(index, BUSY_COST, &mut stage);
    }
    assert_eq!(stage.look().step, Step::Scale(3), "the two that carry none go");
    stage.current = 3;
    stage.pods.truncate(3);
    assert_eq!(stage.look().step, marks(&[("mail-1", None)]), "of as many as are to go");
    stage.pods[1].deletion_cost = None;
    assert_eq!(stage.look().step, Step::Scale(2));
}

#[test]
fn costs_that_other_people_gave_idle_pods_stay() {
    let mut stage = five(&[0]);
    for (index, cost) in [(0, BUSY_COST), (1, 500), (2, -7), (3, BUSY_COST - 1)] {
        marked(index, cost, &mut stage);
    }
    assert_eq!(stage.look().step, Step::Scale(1), "all of them are lower");
}

#[test]
fn where_an_idle_pod_carries_a_higher_cost_busy_ones_get_the_highest() {
    for cost in [BUSY_COST + 1, HIGHEST_COST - 1] {
        let mut stage = five(&[0, 2]);
        marked(0, BUSY_COST, &mut stage);
        marked(1, cost, &mut stage);
        let highest = Some(HIGHEST_COST);
        assert_eq!(stage.look().step, marks(&[("mail-0", highest), ("mail-2", highest)]));
        marked(0, HIGHEST_COST, &mut stage);
        marked(2, HIGHEST_COST, &mut stage);
        assert_eq!(stage.look().step, Step::Scale(2));
        // It is over with the higher cost; the highest one is ours to take away.
        stage.pods[1].deletion_cost = None;
        stage.pods[2] = PodFacts { deletion_cost: highest, ..pod("mail-2") };
        (stage.current, stage.pods) = (2, vec![stage.pods[0].clone(), stage.pods[2].clone()]);
        assert_eq!(stage.look().step, marks(&[("mail-2", None)]));
    }
}

#[test]
fn a_busy_pod_that_carries_a_higher_cost_keeps_it() {
    let mut stage = five(&[0]);
    marked(0, BUSY_COST + 9, &mut stage);
    assert_eq!(stage.look().step, Step::Scale(1));
}

#[test]
fn not_while_a_busy_pod_is_not_ready() {
    for phase in [PodPhase::NotReady, PodPhase::Pending] {
        let mut stage = five(&[0]);
        marked(0, BUSY_COST, &mut stage);
        stage.pods[0].phase = phase;
        let decision = stage.look();
        assert_eq!((decision.step, decision.limited_by), (Step::Hold, Some(Limit::BusyPodNotReady)));
        stage.pods[0].phase = PodPhase::Ready;
        stage.pods[1].phase = phase;
        assert_eq!(stage.look().step, Step::Scale(1), "an idle one may go first");
    }
}

#[test]
fn not_during_a_rollout() {
    let mut stage = five(&[0]);
    marked(0, BUSY_COST, &mut stage);
    stage.rolling_out = true;
    let decision = stage.look();
    assert_eq!((decision.desired, decision.step, decision.limited_by), (0, Step::Hold, Some(Limit::Rollout)));
    stage.rolling_out = false;
    stage.pods[3].revision = Some("newer".into());
    assert_eq!(stage.look().limited_by, Some(Limit::Rollout), "live pods of two revisions are one");
    stage.pods[3].phase = PodPhase::Terminating;
    assert_eq!(stage.look().step, Step::Scale(1), "an old pod that goes is none");
}

#[test]
fn stateful_sets_stay_above_the_highest_busy_ordinal_and_take_no_costs() {
    let table: [(&[usize], i32, Step); 4] =
        [(&[], 0, Step::Scale(0)), (&[0], 0, Step::Scale(1)), (&[1, 2], 0, Step::Scale(3)), (&[4], 0, Step::Hold)];
    for (busy_ones, first, expected) in table {
        let mut stage = five(busy_ones);
        stage.kind = TargetKind::Ordinal { first };
        assert_eq!(stage.look().step, expected, "{busy_ones:?} from {first}");
    }
}

#[test]
fn ordinals_count_from_the_first_one_and_hold_while_that_changes() {
    let numbered = |from: usize, busy_one: usize| {
        let mut stage = five(&[]);
        stage.pods = (from..from + 5).map(|number| pod(&format!("mail-{number}"))).collect();
        stage.pods[busy_one - from].running = 1;
        stage
    };
    for (what, from, busy_one, first, expected) in [
        ("the third of five", 5, 7, 5, Step::Scale(3)),
        ("the first", 5, 5, 5, Step::Scale(1)),
        ("the last", 5, 9, 5, Step::Hold),
        ("not known", 5, 7, 0, Step::Hold),
        ("it has become lower", 3, 7, 5, Step::Hold),
        ("it has become lower by more", 0, 4, 5, Step::Hold),
    ] {
        let mut stage = numbered(from, busy_one);
        stage.kind = TargetKind::Ordinal { first };
        assert_eq!(stage.look().step, expected, "{what}");
    }
    let mut idle = numbered(3, 3);
    (idle.pods[0].running, idle.kind) = (0, TargetKind::Ordinal { first: 5 });
    assert_eq!(idle.look().step, Step::Scale(0), "nothing is cut off");
}

#[test]
fn a_stateful_set_holds_while_a_busy_pod_has_no_number() {
    for name in ["mail", "mail-x", "mail-99999999999"] {
        let mut stage = five(&[]);
        stage.kind = TargetKind::Ordinal { first: 0 };
        stage.pods[0] = busy(name);
        assert_eq!(stage.look().step, Step::Hold, "{name}");
    }
}

#[test]
fn anything_else_holds_while_any_pod_is_busy() {
    let mut stage = five(&[1]);
    stage.kind = TargetKind::Other;
    let decision = stage.look();
    assert_eq!((decision.step, decision.limited_by), (Step::Hold, Some(Limit::BusyPods)));
    stage.pods[1].running = 0;
    assert_eq!(stage.look().step, Step::Scale(0));
}

#[test]
fn without_protection_at_once_and_without_costs() {
    for kind in [TargetKind::Replicas, TargetKind::Ordinal { first: 0 }, TargetKind::Other] {
        let mut stage = five(&[0, 1, 2, 3, 4]);
        stage.kind = kind;
        stage.rules.protect_busy = false;
        stage.rolling_out = true;
        assert_eq!(stage.look().step, Step::Scale(0));
    }
}

#[test]
fn short_jobs_that_move_from_pod_to_pod_do_not_hold_it_forever() {
    let mut stage = Stage::without_stabilization(10);
    stage.mail().running = 30;
    let (mut looks, mut chance) = (0, 1_u64);
    while stage.current > 3 {
        // Each pod is busy at three looks of ten.
        for pod in &mut stage.pods {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            pod.running = u64::from((chance >> 33) % 10 < 3);
        }
        match stage.look().step {
            Step::MarkBusy { costs } => stage.mark(&costs),
            Step::Scale(to) => {
                let mut staying = std::mem::take(&mut stage.pods);
                staying.sort_by_key(|pod| std::cmp::Reverse(pod.deletion_cost.unwrap_or(0)));
                let gone = staying.split_off(usize::try_from(to).unwrap());
                assert!(!gone.iter().any(PodFacts::is_busy), "a busy pod went: {gone:?}");
                (stage.pods, stage.current) = (staying, to);
            }
            Step::Hold => {}
        }
        stage.wait(1);
        looks += 1;
        assert!(looks < 100, "still at {}", stage.current);
    }
}
