//! Due entries of `scheduled` and `retry`, as a pass counts them.

use std::collections::BTreeMap;

use poolkeeper::protocol::gocraft_work::Observer;
use poolkeeper::protocol::{EpochSeconds, JobTypeName, Observation};

use super::fixture::{Fixture, job, job_type};
use crate::support::redis::run;

const SCHEDULED: &str = "work:scheduled";
const RETRY: &str = "work:retry";
/// Far beyond the clock of any machine that runs this.
const LATER: i64 = 4_000_000_000;

fn counting(names: &[&str]) -> Observer {
    let mut observer = Observer::default();
    observer.name_job_types(names.iter().map(|name| job_type(name)).collect());
    observer.count_due(true);
    observer
}

async fn observe(observer: &mut Observer, fixture: &Fixture) -> Observation {
    observer.observe(&fixture.work).await.unwrap()
}

async fn add(fixture: &mut Fixture, key: &str, score: &str, entry: impl AsRef<[u8]>) {
    run::<(), _>(&mut fixture.redis, [b"ZADD".as_slice(), key.as_bytes(), score.as_bytes(), entry.as_ref()]).await;
}

/// `count` entries of the type `name`, with scores from `from` on, `step` apart.
async fn fill(fixture: &mut Fixture, key: &str, name: &str, count: u32, from: u32, step: u32) {
    let script = r#"for i = 0, ARGV[2] - 1 do
        local entry = string.format('{"name":"%s","id":"%s-%d","t":1774958400,"args":{}}', ARGV[1], ARGV[1], i)
        redis.call('ZADD', KEYS[1], ARGV[3] + i * ARGV[4], entry)
    end"#;
    let numbers = [count, from, step].map(|number| number.to_string());
    let words = ["EVAL", script, "1", key, name].into_iter().chain(numbers.iter().map(String::as_str));
    run::<(), _>(&mut fixture.redis, words).await;
}

/// How many are due, the oldest of them, and the next one.
fn due_of(seen: &Observation, name: &str) -> (u64, Option<i64>, Option<i64>) {
    let seen = &seen.job_types[&job_type(name)];
    (seen.due, seen.oldest_due_at.map(|at| at.0), seen.next_due_at.map(|at| at.0))
}

async fn calls(fixture: &mut Fixture, command: &str) -> u64 {
    let info: String = fixture.line("INFO commandstats").await;
    let calls = info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn due_entries_of_both_sets_count_for_their_job_type() {
    let mut fixture = Fixture::new().await;
    add(&mut fixture, SCHEDULED, "100", job("a", "1")).await;
    add(&mut fixture, SCHEDULED, "70.5", job("a", "2")).await;
    add(&mut fixture, RETRY, "50", job("a", "3")).await;
    add(&mut fixture, RETRY, "40", job("b", "4")).await;
    add(&mut fixture, SCHEDULED, &(LATER + 5).to_string(), job("a", "5")).await;
    add(&mut fixture, RETRY, &LATER.to_string(), job("a", "6")).await;
    add(&mut fixture, RETRY, &LATER.to_string(), job("c", "7")).await;
    add(&mut fixture, SCHEDULED, "1", job("unheard_of", "8")).await;
    let before = fixture.dump().await;
    let mut observer = counting(&["a", "b", "c", "d"]);
    let seen = observe(&mut observer, &fixture).await;
    assert_eq!(due_of(&seen, "a"), (3, Some(50), Some(LATER)));
    assert_eq!(due_of(&seen, "b"), (1, Some(40), None));
    assert_eq!(due_of(&seen, "c"), (0, None, Some(LATER)));
    assert_eq!(due_of(&seen, "d"), (0, None, None));
    assert!(!seen.job_types.contains_key(&job_type("unheard_of")), "its keys were not read");
    assert!(!seen.due_incomplete && seen.spoiled_sets.is_empty());
    assert_eq!(fixture.dump().await, before, "counting changes nothing");

    let scripts = calls(&mut fixture, "evalsha").await;
    assert_eq!(observe(&mut observer, &fixture).await.job_types, seen.job_types);
    assert_eq!(calls(&mut fixture, "evalsha").await, scripts + 1, "one script a pass");
}

/// An entry is due in the second that its score names, by Redis's clock.
#[tokio::test]
async fn redis_s_clock_decides_what_is_due() {
    let mut fixture = Fixture::new().await;
    let now: i64 = fixture.line::<Vec<i64>>("TIME").await[0];
    let names: Vec<String> = (-3..10).map(|offset| (now + offset).to_string()).collect();
    for score in &names {
        add(&mut fixture, SCHEDULED, score, job(score, "1")).await;
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let seen = observe(&mut counting(&names), &fixture).await;
    for name in names {
        let score: i64 = name.parse().unwrap();
        let is_due = score <= seen.redis_time.0;
        let expected = if is_due { (1, Some(score), None) } else { (0, None, Some(score)) };
        assert_eq!(due_of(&seen, name), expected, "at {:?}", seen.redis_time);
    }
}

#[tokio::test]
async fn infinite_scores_are_due_or_never() {
    let mut fixture = Fixture::new().await;
    add(&mut fixture, RETRY, "-inf", job("a", "1")).await;
    add(&mut fixture, RETRY, "+inf", job("a", "2")).await;
    add(&mut fixture, RETRY, "+inf", job("b", "3")).await;
    let seen = observe(&mut counting(&["a", "b"]), &fixture).await;
    assert_eq!(due_of(&seen, "a"), (1, None, None));
    assert_eq!(due_of(&seen, "b"), (0, None, None));
    add(&mut fixture, RETRY, "60", job("a", "4")).await;
    assert_eq!(due_of(&observe(&mut counting(&["a"]), &fixture).await, "a"), (2, Some(60), None));
}

#[tokio::test]
async fn the_name_is_found_however_the_job_is_written_and_other_entries_spoil_nothing() {
    let deep = format!(r#"{{"args":{}{},"name":"a"}}"#, "[".repeat(5_000), "]".repeat(5_000));
    let long = format!(r#"{{"args":"{}","name":"a"}}"#, "x".repeat(20_000));
    let long_go = format!(r#"{{"name":"a","args":"{}"}}"#, "x".repeat(20_000));
    let entries: &[(&[u8], Option<&[u8]>)] = &[
        (br#"{"name":"a","id":"1","t":1,"args":{"name":"b"}}"#, Some(b"a")),
        (br#"{"args":{"name":"b"},"t":1,"id":"1","name":"a"}"#, Some(b"a")),
        (br#"{ "name" : "a" }"#, Some(b"a")),
        (long_go.as_bytes(), Some(b"a")),
        (br#"{"name":"a:b","id":"1","t":1,"args":null}"#, Some(b"a:b")),
        (br#"{"name":"a\"b","id":"1","t":1,"args":null}"#, Some(b"a\"b")),
        (br#"{"name":"a\\","id":"1","t":1,"args":null}"#, Some(b"a\\")),
        (br#"{"name":"a\u003cb\u00e9","id":"1","t":1,"args":null}"#, Some("a<b\u{e9}".as_bytes())),
        (b"{\"name\":\"a\xff\",\"id\":\"1\"}", Some(b"a\xff")),
        (br#"{"name":"err","id":"1"}"#, Some(b"err")),
        (br#"{"name":"ok","id":"1"}"#, Some(b"ok")),
        (br#"{"name":"","id":"1"}"#, Some(b"")),
        (br#"{"name":"a","id":"1""#, None),
        (br#"{"name":"a" "id"}"#, None),
        (br#"{"name":7,"id":"1"}"#, None),
        (br#"{"name":null,"id":"1"}"#, None),
        (br#"{"id":"1","args":{"name":"a"}}"#, None),
        (br#"["a"]"#, None),
        (br#""a""#, None),
        (b"7", None),
        (b"", None),
        (b"not JSON", None),
        (b"{\"name\":\"a\x00", None),
        (deep.as_bytes(), None),
        (long.as_bytes(), None),
    ];
    let texts: Vec<String> =
        entries.iter().filter_map(|(_, name)| name.map(poolkeeper::protocol::text::of_bytes)).collect();
    let mut names: Vec<&str> = texts.iter().map(String::as_str).collect();
    names.extend(["a", "b", "7", "witness"]);
    let mut fixture = Fixture::new().await;
    for (entry, name) in entries {
        fixture.line::<()>("FLUSHALL").await;
        add(&mut fixture, SCHEDULED, "1", entry).await;
        add(&mut fixture, SCHEDULED, "2", job("witness", "1")).await;
        add(&mut fixture, RETRY, "3", job("witness", "2")).await;
        let seen = observe(&mut counting(&names), &fixture).await;
        let counted = seen.job_types.iter().filter(|(_, seen)| seen.due > 0);
        let counted: BTreeMap<Vec<u8>, u64> = counted.map(|(name, seen)| (name.to_bytes(), seen.due)).collect();
        let ours = name.map(|name| (name.to_vec(), 1));
        let expected: BTreeMap<Vec<u8>, u64> = ours.into_iter().chain([(b"witness".into(), 2)]).collect();
        assert_eq!(counted, expected, "{}", String::from_utf8_lossy(&entry[..entry.len().min(80)]));
    }
}

#[tokio::test]
async fn a_set_of_a_wrong_type_spoils_no_job_type_and_is_named() {
    let mut fixture = Fixture::new().await;
    fixture.line::<()>("LPUSH work:jobs:a x").await;
    fixture.line::<()>("SET work:scheduled x").await;
    add(&mut fixture, RETRY, "5", job("a", "1")).await;
    let mut observer = counting(&["a"]);
    let seen = observe(&mut observer, &fixture).await;
    assert_eq!(seen.spoiled_sets, [SCHEDULED]);
    assert_eq!(due_of(&seen, "a"), (1, Some(5), None));
    assert_eq!((seen.job_types[&job_type("a")].waiting, &seen.job_types[&job_type("a")].spoiled), (1, &None));
    fixture.line::<()>("DEL work:scheduled").await;
    assert!(observe(&mut observer, &fixture).await.spoiled_sets.is_empty());
}

#[tokio::test]
async fn the_sets_are_not_read_where_that_is_not_wanted() {
    let mut fixture = Fixture::new().await;
    fill(&mut fixture, SCHEDULED, "a", 1_000, 1, 1).await;
    let mut observer = counting(&["a"]);
    assert_eq!(due_of(&observe(&mut observer, &fixture).await, "a").0, 1_000);
    observer.count_due(false);
    fixture.line::<()>("CONFIG RESETSTAT").await;
    let seen = observe(&mut observer, &fixture).await;
    assert_eq!((due_of(&seen, "a"), seen.due_incomplete), ((0, None, None), false));
    assert_eq!(calls(&mut fixture, "zcount").await, 0);
    assert_eq!(calls(&mut fixture, "zrange").await, 1, "only the pools that were reaped");
    assert_eq!(calls(&mut fixture, "evalsha").await, 1);
}

#[tokio::test]
async fn entries_behind_three_thousand_others_are_found_in_the_same_pass() {
    let mut fixture = Fixture::new().await;
    fill(&mut fixture, SCHEDULED, "foreign", 3_000, 1, 1).await;
    add(&mut fixture, SCHEDULED, "5000", job("ours", "1")).await;
    add(&mut fixture, RETRY, "6000", job("ours", "2")).await;
    let mut observer = counting(&["ours", "foreign"]);
    observe(&mut observer, &fixture).await;
    for _ in 0..3 {
        let scripts = calls(&mut fixture, "evalsha").await;
        let seen = observe(&mut observer, &fixture).await;
        assert_eq!(due_of(&seen, "ours"), (2, Some(5_000), None));
        assert_eq!(due_of(&seen, "foreign"), (3_000, Some(1), None));
        assert!(!seen.due_incomplete);
        assert_eq!(calls(&mut fixture, "evalsha").await, scripts + 1 + 7, "one for the pass, and seven pages");
    }
}

/// The walk takes three passes; meanwhile entries come and go.
#[tokio::test]
async fn what_is_there_is_never_told_to_be_gone() {
    let mut fixture = Fixture::new().await;
    fill(&mut fixture, SCHEDULED, "foreign", 12_000, 1, 1).await;
    add(&mut fixture, SCHEDULED, "20000", job("ours", "1")).await;
    let mut observer = counting(&["ours"]);
    let first = observe(&mut observer, &fixture).await;
    assert_eq!((due_of(&first, "ours").0, first.due_incomplete), (0, true), "not found yet, which is said");
    let mut passes = 1;
    while due_of(&observe(&mut observer, &fixture).await, "ours").0 == 0 {
        passes += 1;
        assert!(passes < 3, "three passes look at 15,000 entries");
    }
    for pass in 0..12 {
        // As a pool of the other queue would do.
        fixture.line::<()>("ZPOPMIN work:scheduled 170").await;
        let seen = observe(&mut observer, &fixture).await;
        assert_eq!(due_of(&seen, "ours"), (1, Some(20_000), None), "pass {pass}");
        assert!(!seen.due_incomplete);
    }
    run::<(), _>(&mut fixture.redis, ["ZREM", SCHEDULED, &job("ours", "1")]).await;
    let mut passes = 0;
    while due_of(&observe(&mut observer, &fixture).await, "ours").0 > 0 {
        passes += 1;
        assert!(passes <= 6, "the walk that saw it, and a whole one after it");
    }
}

/// A cursor within thousands of equal scores, of which those that were looked at go.
#[tokio::test]
async fn none_is_passed_over_where_scores_are_equal() {
    let mut fixture = Fixture::new().await;
    fill(&mut fixture, RETRY, "foreign", 9_000, 7, 0).await;
    for number in 0..40 {
        // Last by its bytes among those of that score.
        add(&mut fixture, RETRY, "7", job("ours", &number.to_string())).await;
    }
    let mut observer = counting(&["ours"]);
    let mut found = Vec::new();
    for _ in 0..10 {
        found.push(due_of(&observe(&mut observer, &fixture).await, "ours").0);
        fixture.line::<()>("ZPOPMIN work:retry 450").await;
    }
    assert_eq!(found[0], 0);
    assert!(found[2..].iter().all(|count| *count == 40), "{found:?}");
}

/// Redis is not blocked by what it must decode or copy; the rest of a page is looked at by the next.
#[tokio::test]
async fn large_entries_are_looked_at_a_few_at_a_time() {
    let mut fixture = Fixture::new().await;
    for number in 0..12 {
        let unquoted = format!(r#"{{"id":"{number}","args":[{}1],"name":"a"}}"#, "1,".repeat(7_000));
        add(&mut fixture, SCHEDULED, "1", unquoted).await;
        let large = format!(r#"{{"name":"b","id":"{number}","args":"{}"}}"#, "x".repeat(400_000));
        add(&mut fixture, RETRY, "1", large).await;
    }
    let mut observer = counting(&["a", "b"]);
    let mut passes = 0;
    loop {
        fixture.line::<()>("CONFIG RESETSTAT").await;
        let seen = observe(&mut observer, &fixture).await;
        assert!(calls(&mut fixture, "evalsha").await >= 8, "one script read all of it");
        passes += 1;
        if (due_of(&seen, "a").0, due_of(&seen, "b").0) == (12, 12) {
            break;
        }
        assert!(passes < 5 && seen.due_incomplete);
    }
}

#[tokio::test]
async fn the_next_due_entry_is_known_behind_due_ones() {
    let mut fixture = Fixture::new().await;
    fill(&mut fixture, SCHEDULED, "a", 1_000, 1, 1).await;
    add(&mut fixture, SCHEDULED, &LATER.to_string(), job("a", "later")).await;
    let seen = observe(&mut counting(&["a"]), &fixture).await;
    let names: Vec<&str> = seen.job_types.keys().map(JobTypeName::as_str).collect();
    assert_eq!(names, ["a"]);
    assert_eq!(seen.job_types[&job_type("a")].next_due_at, Some(EpochSeconds(LATER)));
    assert_eq!(due_of(&seen, "a"), (1_000, Some(1), Some(LATER)));
}
