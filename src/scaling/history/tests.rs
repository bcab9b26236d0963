//! What is remembered, for how long, and that it stays small.

use super::*;

/// At which second how many replicas were recommended.
type Recommendations = &'static [(u64, i32)];

const WINDOW: Duration = Duration::from_secs(300);

fn at(start: Instant, seconds: u64) -> Instant {
    start + Duration::from_secs(seconds)
}

/// A history whose target had 0 replicas, and what was recommended at which second.
fn watched(start: Instant, recommendations: &[(u64, i32)]) -> History {
    let mut history = History::new(start);
    for (second, replicas) in recommendations {
        history.look(at(start, *second), 0);
        history.record_recommendation(at(start, *second), *replicas, WINDOW);
    }
    history
}

#[test]
fn the_highest_recommendation_of_the_window_counts_and_stands_until_the_next() {
    let table: [(&str, Recommendations, u64, i32); 7] = [
        ("the only one", &[(0, 4)], 1000, 4),
        ("the higher one within the window", &[(0, 7), (10, 4)], 309, 7),
        ("until the window has passed since the next", &[(0, 7), (10, 4)], 310, 4),
        ("a lower one between says nothing", &[(0, 4), (10, 7), (20, 4)], 319, 7),
        ("one by one", &[(0, 9), (100, 7), (200, 4)], 399, 9),
        ("and the next after it", &[(0, 9), (100, 7), (200, 4)], 400, 7),
        ("and the last", &[(0, 9), (100, 7), (200, 4)], 500, 4),
    ];
    for (name, recommendations, second, expected) in table {
        let start = Instant::now();
        let history = watched(start, recommendations);
        assert_eq!(history.highest_recommendation(at(start, second), WINDOW), Some(expected), "{name}");
    }
}

#[test]
fn without_a_window_only_the_standing_recommendation_counts() {
    let start = Instant::now();
    let history = watched(start, &[(0, 7), (10, 4)]);
    assert_eq!(history.highest_recommendation(at(start, 10), Duration::ZERO), Some(4));
}

#[test]
fn the_window_begins_with_what_is_there_and_anew_after_a_gap() {
    let start = Instant::now();
    let mut history = History::new(start);
    history.look(start, 6);
    history.record_recommendation(start, 1, WINDOW);
    assert_eq!(history.highest_recommendation(at(start, 299), WINDOW), Some(6));
    assert_eq!(history.highest_recommendation(at(start, 300), WINDOW), Some(1));
    for second in [120, 240, 360] {
        history.look(at(start, second), 5);
        history.record_recommendation(at(start, second), 1, WINDOW);
    }
    assert_eq!(history.highest_recommendation(at(start, 360), WINDOW), Some(1), "looks 120 s apart are no gap");
    history.look(at(start, 481), 5);
    history.record_recommendation(at(start, 481), 1, WINDOW);
    assert_eq!(history.highest_recommendation(at(start, 780), WINDOW), Some(5));
    assert_eq!(history.highest_recommendation(at(start, 781), WINDOW), Some(1));
}

#[test]
fn when_the_highest_recommendation_falls_is_told() {
    let start = Instant::now();
    let history = watched(start, &[(0, 9), (100, 7), (200, 4)]);
    let falls = |replicas| history.falls_below(replicas, at(start, 250), WINDOW).map(|after| after.as_secs());
    assert_eq!(falls(9), Some(150));
    assert_eq!(falls(8), Some(150));
    assert_eq!(falls(7), Some(250));
    assert_eq!(falls(4), None, "the last one stands");
}

#[test]
fn what_was_added_is_forgotten_after_a_minute() {
    let start = Instant::now();
    let mut history = History::new(start);
    history.look(start, 0);
    history.scaled_up(start, 2);
    history.look(at(start, 30), 2);
    history.scaled_up(at(start, 30), 3);
    history.scaled_up(at(start, 30), 0);
    let table = [(30, 5, true, Some(30)), (59, 5, true, Some(1)), (60, 3, false, Some(30)), (90, 0, false, None)];
    for (second, added, woken, refills) in table {
        let now = at(start, second);
        assert_eq!(history.added_within_minute(now), added, "at {second}");
        assert_eq!(history.woken_within_minute(now), woken, "at {second}");
        assert_eq!(history.refills_in(now).map(|after| after.as_secs()), refills, "at {second}");
    }
    assert_eq!(history.since_raise(at(start, 40)), Some(Duration::from_secs(10)));
}

#[test]
fn it_stays_small_and_errs_to_the_higher_side() {
    let start = Instant::now();
    let mut history = History::new(start);
    let tick = |index: u64| start + Duration::from_millis(100 * index);
    for index in 0..3000_u64 {
        history.look(tick(index), 0);
        history.record_recommendation(tick(index), 5000 - index as i32, WINDOW);
        history.scaled_up(tick(index), 1);
        assert!(history.recommended.len() <= RECOMMENDATIONS_AT_MOST);
        assert!(history.raises.len() <= 62);
    }
    for index in [2999, 3003] {
        let (exact, found) = (2999 + 600 - index, history.added_within_minute(tick(u64::from(index))));
        assert!((exact..exact + 10).contains(&found), "raises of one second are forgotten together: {found}");
    }
    // The recommendation of the second when 100 s of the window have passed was 5000 - 1000.
    for seconds in [300, 350, 400, 500, 599] {
        let now = at(start, seconds);
        let exact = 5000 - 10 * (seconds as i32 - 300) - 1;
        let found = history.highest_recommendation(now, WINDOW).unwrap();
        assert!(found >= exact, "at {seconds}: {found} is less than {exact}");
        assert!(found <= exact + 150, "at {seconds}: {found} is far above {exact}");
    }
}
