//! More than a third, and at least four.

use super::*;
use crate::reaper::pods::WhyUnknown;
use crate::reaper::verdict::{Expect, Proof, Quiet};

const TIMEOUT: Duration = Duration::from_secs(12);

/// Whether the first of `silent` of `all` pools is held, having fallen silent `apart` seconds after one another.
fn held(silent: u64, all: u64, apart: u64, lasts: u64) -> bool {
    let start = Instant::now();
    let since = |number: u64| start + Duration::from_secs(number * apart);
    let fell: Vec<Fell> = (0..all)
        .map(|number| {
            let silent_for = if number < silent { Duration::from_secs(lasts) } else { Duration::ZERO };
            Fell { since: since(number), silent_for }
        })
        .collect();
    let quiet = Quiet {
        silent_for: Duration::from_secs(lasts),
        needed: TIMEOUT,
        since: since(0),
        expect: Expect::Absent { listed: false },
    };
    let proof = Proof::Silent { why: WhyUnknown::NoPod, host: HostKey::of("h"), place: None, quiet };
    let mut verdicts = BTreeMap::from([(PoolId::from("p"), Verdict::Dead(proof))]);
    hold_many_at_once(&mut verdicts, &fell, TIMEOUT)
}

#[test]
fn a_crowd_is_more_than_a_third_and_at_least_four_within_one_timeout() {
    let table = [
        ("four of eleven", held(4, 11, 1, 12), true),
        ("four of twelve", held(4, 12, 1, 12), false),
        ("all three", held(3, 3, 1, 12), false),
        ("all four", held(4, 4, 1, 12), true),
        ("one after the other", held(4, 4, 5, 12), false),
        ("nearly another timeout", held(4, 4, 1, 23), true),
        ("another timeout", held(4, 4, 1, 24), false),
    ];
    for (name, got, expected) in table {
        assert_eq!(got, expected, "{name}");
    }
}

fn claimant(name: &str, candidates: &[&str]) -> Claimant {
    Claimant {
        pool: PoolId::from(name),
        process: ProcessKey { host: HostKey::of("h"), pid: name.into(), started_at: EpochSeconds(1) },
        since: Instant::now(),
        candidates: candidates.iter().map(|id| Arc::from(*id)).collect(),
        may_run: true,
        dead: true,
    }
}

/// Candidates of one that is dead already, of one that can only be in ended containers, and of the claimants; and how
/// many of these are refused.
type Row = (&'static [&'static str], &'static [&'static str], &'static [&'static [&'static str]], usize);

#[test]
fn every_dead_process_needs_an_end_of_its_own_and_makes_room_where_it_can() {
    let over: BTreeSet<Arc<str>> = ["a".into(), "b".into()].into();
    let table: [Row; 5] = [
        (&[], &[], &[&["a", "x"]], 0),
        (&[], &[], &[&["a", "x"], &["a", "x"]], 1),
        (&["a", "b"], &[], &[&["a", "x"]], 0),
        (&["a", "b"], &["b"], &[&["a", "x"]], 1),
        (&["a"], &["b"], &[&["x", "b"]], 1),
    ];
    for (dead, sure, claims, refused) in table {
        let mut deaths = Deaths::new();
        if !dead.is_empty() {
            let one = claimant("dead", dead);
            deaths.insert(one.process, one.candidates);
        }
        let sure = if sure.is_empty() { vec![] } else { vec![claimant("sure", sure)] };
        let claims: Vec<Claimant> =
            claims.iter().enumerate().map(|(number, ids)| claimant(&number.to_string(), ids)).collect();
        let mut verdicts = BTreeMap::new();
        limit_to_ended(&mut verdicts, &over, sure, claims.clone(), &mut deaths);
        assert_eq!(verdicts.len(), refused, "{dead:?} {claims:?}");
    }
}
