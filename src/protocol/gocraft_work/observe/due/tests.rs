//! What is told of due entries, walk by walk.

use super::*;

fn types(counts: &[(&str, u64, i64)]) -> ByType {
    let entries = |due, oldest| Entries { due, oldest_due_at: Some(EpochSeconds(oldest)), next_due_at: None };
    counts.iter().map(|(name, due, oldest)| (JobTypeName::from(*name), entries(*due, *oldest))).collect()
}

fn more(counts: &[(&str, u64, i64)]) -> Page {
    Page { types: types(counts), next: Some(["7".into(), "1".into(), "1".into()]) }
}

fn end(counts: &[(&str, u64, i64)]) -> Page {
    Page { types: types(counts), next: None }
}

fn told(walk: &Walk, head: &[(&str, u64, i64)], due: u64) -> Vec<(String, u64, Option<i64>)> {
    let all = walk.with(types(head), due);
    all.iter().map(|(name, seen)| (name.to_string(), seen.due, seen.oldest_due_at.map(|at| at.0))).collect()
}

fn a(due: u64, oldest: i64) -> Vec<(String, u64, Option<i64>)> {
    vec![("a".into(), due, Some(oldest))]
}

#[test]
fn what_a_walk_finds_is_told_at_once_and_until_the_next_is_complete() {
    let mut walk = Walk::default();
    assert!(told(&walk, &[], 9_000).is_empty());
    assert!(!walk.add(more(&[("a", 3, 50)]), |_| true));
    assert_eq!(told(&walk, &[], 9_000), a(3, 50));
    assert!(walk.add(end(&[("a", 4, 60)]), |_| true));
    assert_eq!(told(&walk, &[], 9_000), a(7, 50));
    // The next walk has not come to them yet, and then finds fewer.
    assert_eq!(walk.cursor, Cursor::default());
    assert!(!walk.add(more(&[]), |_| true));
    assert_eq!(told(&walk, &[], 9_000), a(7, 50));
    assert!(walk.add(end(&[("a", 2, 70)]), |_| true));
    assert_eq!(told(&walk, &[], 9_000), a(2, 70));
    assert!(walk.add(end(&[]), |_| true));
    assert!(told(&walk, &[], 9_000).is_empty());
}

#[test]
fn the_head_is_told_where_it_shows_more_and_no_count_exceeds_all_that_is_due() {
    let mut walk = Walk::default();
    walk.add(end(&[("a", 100, 50)]), |_| true);
    assert_eq!(told(&walk, &[("a", 200, 40)], 9_000), a(200, 40));
    assert_eq!(told(&walk, &[("a", 20, 60)], 30), a(30, 50));
}

#[test]
fn job_types_that_nobody_knows_are_not_kept() {
    let mut walk = Walk::default();
    walk.add(more(&[("a", 1, 5), ("b", 1, 5)]), |name| name.as_str() == "a");
    assert_eq!(told(&walk, &[], 9_000), a(1, 5));
}

#[test]
fn a_score_is_the_second_from_which_on_the_entry_is_due() {
    for (score, second) in [
        ("1774958400", Some(1_774_958_400)),
        ("1774958400.25", Some(1_774_958_401)),
        ("1.774958400e+9", Some(1_774_958_400)),
        ("-5", Some(0)),
        ("1e300", Some(9_007_199_254_740_992)),
        ("inf", None),
        ("-inf", None),
        ("nan", None),
        ("", None),
    ] {
        assert_eq!(second_of(score), second.map(EpochSeconds), "{score}");
    }
}
