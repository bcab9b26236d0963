//! Pools that are nobody's pod, ids without a heartbeat, and what was reaped before.

use super::named;
use super::stage::{Stage, every_five, pool, running};
use crate::protocol::PoolSeen;
use crate::reaper::judge::Judgement;
use crate::reaper::verdict::Expect;

#[test]
fn an_outsider_is_dead_after_its_own_timeout_or_never() {
    let mut stage = Stage::new();
    stage.claim("here", "mail", &["w"]);
    stage.beat("laptop", "laptop", -59);
    let dead = stage.run(100.0, |_| {});
    let (when, proof) = &dead[&pool("laptop")];
    assert_eq!(proof.name(), "OutsiderSilent");
    assert!((60.0..=63.0).contains(when), "{when}");

    let mut stage = Stage::new();
    stage.set_settings(|settings| settings.outsider_timeout = None);
    stage.beat("laptop", "laptop", -59);
    assert!(stage.run(600.0, |_| {}).is_empty());
    assert_eq!(named(&stage.look(), "laptop"), "living");
}

#[test]
fn a_host_of_our_own_claim_without_a_pod_is_unknown_and_one_of_another_claim_is_not_ours() {
    let mut stage = Stage::new();
    stage.claim("here", "mail", &["w"]);
    stage.claim("there", "mail", &["v"]);
    stage.beat("w", "w", -59);
    stage.beat("v", "v", -59);
    let dead = stage.run(100.0, |_| {});
    let (when, proof) = &dead[&pool("w")];
    assert_eq!(proof.describe(), "it has no pod, and host w was silent for 12 s");
    assert!((12.0..=13.5).contains(when), "{when}");
    assert!(!dead.contains_key(&pool("v")));
}

#[test]
fn c01_an_id_without_a_heartbeat_is_acted_on_at_the_second_look_a_timeout_later() {
    let mut stage = Stage::new();
    stage.redis.pools.insert(pool("d"), PoolSeen::default());
    stage.jobs("d", 2);
    let dead = stage.run(30.0, |_| {});
    let (when, proof) = &dead[&pool("d")];
    assert_eq!((proof.name(), proof.expect()), ("UnknownPool", Expect::Absent { listed: false }));
    assert!((12.0..=13.5).contains(when), "{when}");
}

#[test]
fn a_pool_that_is_listed_but_has_no_heartbeat_is_judged_as_that() {
    let mut stage = Stage::new();
    stage.redis.pools.insert(pool("d"), PoolSeen { heartbeat: None, listed: true });
    let dead = stage.run(30.0, |_| {});
    assert_eq!(dead[&pool("d")].1.expect(), Expect::Absent { listed: true });
    // Likewise when it beat while we looked, and a reaper died between its two deletions.
    let mut stage = Stage::new();
    stage.bound("w");
    stage.redis.pools.insert(pool("w"), PoolSeen { heartbeat: None, listed: true });
    stage.restart_operator(vec![]);
    let dead = stage.run(30.0, |_| {});
    assert_eq!(dead[&pool("w")].1.expect(), Expect::Absent { listed: true });
}

#[test]
fn c01_an_id_whose_heartbeat_shows_up_is_left_alone() {
    let mut stage = Stage::new();
    stage.redis.pools.insert(pool("d"), PoolSeen::default());
    let dead = stage.run(100.0, |stage| {
        if stage.now() >= 3.0 && every_five(stage) {
            stage.beat("d", "laptop", 3);
        }
    });
    assert!(dead.is_empty(), "{dead:?}");
}

#[test]
fn an_id_without_a_heartbeat_waits_longer_when_a_pod_started_meanwhile() {
    let mut stage = Stage::new();
    stage.redis.pools.insert(pool("d"), PoolSeen::default());
    let dead = stage.run(100.0, |stage| {
        if (stage.now() - 3.0).abs() < 0.01 {
            stage.apply(running("w", 3));
        }
    });
    let (when, _) = &dead[&pool("d")];
    assert!((60.0..=61.5).contains(when), "{when}");
}

#[test]
fn what_a_reaped_pool_writes_late_is_settled_at_once() {
    let mut stage = Stage::new();
    stage.redis.reaped.insert(pool("d"), stage.redis.redis_time);
    stage.redis.pools.insert(pool("d"), PoolSeen::default());
    assert_eq!(named(&stage.look(), "d"), "ReapedBefore");
    stage.jobs("e", 1);
    stage.redis.reaped.insert(pool("e"), stage.redis.redis_time);
    stage.redis.pools.insert(pool("e"), PoolSeen::default());
    assert_eq!(named(&stage.at(1.0).look(), "e"), "UnknownPool");
    assert_eq!(named(&stage.at(2.0).look(), "e"), "ReapedBefore");
}

#[test]
fn a_reaped_pool_that_beats_again_is_named_once_and_lives() {
    let mut stage = Stage::new();
    stage.redis.reaped.insert(pool("w"), stage.redis.redis_time);
    stage.beat("w", "w", -59);
    stage.apply(running("w", -60));
    let mut named_times = 0;
    let mut last = Judgement::default();
    for second in 0..40 {
        stage.at(f64::from(second));
        if every_five(&stage) {
            stage.beat("w", "w", -59);
        }
        last = stage.look();
        assert!(!last.dead.contains_key(&pool("w")), "second {second}");
        named_times += last.resurrected.len();
    }
    assert_eq!(named_times, 1);
    assert_eq!(named(&last, "w"), "living");
    // One that only left a heartbeat behind is settled when it has not moved for a beat and a half.
    let mut stage = Stage::new();
    stage.redis.reaped.insert(pool("v"), stage.redis.redis_time);
    stage.beat("v", "v", -59);
    let dead = stage.run(20.0, |_| {});
    assert!((7.5..=9.0).contains(&dead[&pool("v")].0), "{dead:?}");
}
