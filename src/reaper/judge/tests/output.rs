//! What a judgement says besides: when to look again, which pods are busy, which bindings to keep.

use std::sync::Arc;

use super::named;
use super::stage::{Stage, pool, running};
use crate::reaper::judge::{CALM_LOOK, EMPTY_LOOK, OPEN_LOOK};
use crate::reaper::owner::QueuePods;

#[test]
fn while_the_pods_are_not_known_a_missing_one_says_nothing() {
    let mut stage = Stage::new();
    stage.bound("w");
    let nothing = QueuePods::new(&[]);
    for second in 6..60 {
        stage.at(f64::from(second));
        let judgement = stage.judge.look(stage.instant(), Arc::new(stage.redis.clone()), &nothing);
        assert_eq!(named(&judgement, "w"), "PodsNotKnown");
    }
}

#[test]
fn looks_are_frequent_while_a_fate_is_open_or_a_container_starts() {
    let mut stage = Stage::new();
    assert_eq!(stage.look().next_look, EMPTY_LOOK);
    stage.apply(running("w", 0));
    assert_eq!(stage.look().next_look, OPEN_LOOK);
    assert_eq!(stage.at(20.0).look().next_look, EMPTY_LOOK);
    stage.beat("w", "w", 0);
    assert_eq!(stage.look().next_look, CALM_LOOK);
    stage.list(vec![]);
    stage.claim("here", "mail", &["w"]);
    assert_eq!(stage.look().next_look, OPEN_LOOK);
}

#[test]
fn bindings_are_named_until_redis_has_them_and_stale_when_their_pool_is_nowhere() {
    let mut stage = Stage::new();
    stage.keep_bindings = false;
    stage.apply(running("w", -60));
    stage.beat("w", "w", -59);
    stage.look();
    stage.at(2.0).beat("w", "w", -59);
    assert_eq!(stage.look().new_bindings.len(), 1);
    let again = stage.at(4.0).look();
    assert_eq!(again.new_bindings.len(), 1);
    stage.redis.bindings.extend(again.new_bindings);
    assert!(stage.at(6.0).look().new_bindings.is_empty());
    stage.redis.pools.clear();
    assert_eq!(stage.at(8.0).look().stale_bindings, [pool("w")].into());
    stage.redis.bindings.get_mut(&pool("w")).unwrap().candidates[0].cluster = "there".into();
    assert!(stage.at(9.0).look().stale_bindings.is_empty(), "another cluster's are spared");
}
