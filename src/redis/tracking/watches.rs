//! Which watches are to run, and when. Pure: the caller says what time it is.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Outbox, Watch};

/// Runs for changes that a watch may make in a burst.
const BURST: f64 = 20.0;
/// Runs for changes a second after that.
const PER_SECOND: f64 = 5.0;
/// How often a script runs where changes are not heard of.
const POLL: Duration = Duration::from_secs(1);

/// One watch and when it runs.
pub(super) struct Entry {
    pub(super) watch: Watch,
    pub(super) outbox: Arc<Outbox>,
    /// When it runs next; every run sets it anew.
    due: Instant,
    /// A change has set `due` already.
    answering: bool,
    /// Runs for changes that are left, as of `counted`; below 0 while one is put off.
    budget: f64,
    counted: Instant,
}

impl Entry {
    /// A change wants a run: now, or when the rate limit allows it. Several changes until then make one run.
    fn changed(&mut self, now: Instant) {
        if self.answering {
            return;
        }
        self.answering = true;
        let earned = now.saturating_duration_since(self.counted).as_secs_f64() * PER_SECOND;
        self.budget = (self.budget + earned).min(BURST) - 1.0;
        self.counted = now;
        let wait = Duration::from_secs_f64((-self.budget / PER_SECOND).max(0.0));
        self.due = self.due.min(now + wait);
    }
}

/// All watches of one connection.
#[derive(Default)]
pub(super) struct Watches {
    entries: BTreeMap<u64, Entry>,
    by_key: HashMap<Vec<u8>, Vec<u64>>,
}

impl Watches {
    pub(super) fn add(&mut self, id: u64, watch: Watch, outbox: Arc<Outbox>, now: Instant) {
        self.index(id, &watch.keys);
        self.entries.insert(id, Entry { watch, outbox, due: now, answering: false, budget: BURST, counted: now });
    }

    pub(super) fn replace(&mut self, id: u64, keys: Vec<Vec<u8>>, args: Vec<Vec<u8>>, now: Instant) {
        self.unindex(id);
        self.index(id, &keys);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.watch.keys = keys;
            entry.watch.args = args;
            entry.due = now;
        }
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.unindex(id);
        self.entries.remove(&id);
    }

    /// Somebody changed `key`.
    pub(super) fn key_changed(&mut self, key: &[u8], now: Instant) {
        for id in self.by_key.get(key).into_iter().flatten() {
            if let Some(entry) = self.entries.get_mut(id) {
                entry.changed(now);
            }
        }
    }

    /// Everything may have changed: all run now.
    pub(super) fn all_changed(&mut self, now: Instant) {
        for entry in self.entries.values_mut() {
            entry.due = now;
        }
    }

    /// Changes are not heard of from now on: none waits for longer than a poll.
    pub(super) fn heard_no_more(&mut self, now: Instant) {
        for entry in self.entries.values_mut() {
            entry.due = entry.due.min(now + POLL);
        }
    }

    /// The watches to run now. Each is due again after its resync, or in a second where changes are not heard of.
    pub(super) fn take_due(&mut self, now: Instant, heard: bool) -> Vec<u64> {
        let mut due = Vec::new();
        for (id, entry) in &mut self.entries {
            if entry.due <= now {
                due.push(*id);
                let resync = if heard { entry.watch.resync } else { entry.watch.resync.min(POLL) };
                entry.due = now + resync;
                entry.answering = false;
            }
        }
        due
    }

    /// When the next watch is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.entries.values().map(|entry| entry.due).min()
    }

    pub(super) fn get(&self, id: u64) -> Option<&Entry> {
        self.entries.get(&id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn index(&mut self, id: u64, keys: &[Vec<u8>]) {
        for key in keys {
            let ids = self.by_key.entry(key.clone()).or_default();
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
    }

    fn unindex(&mut self, id: u64) {
        let Some(entry) = self.entries.get(&id) else { return };
        for key in &entry.watch.keys {
            if let Some(ids) = self.by_key.get_mut(key) {
                ids.retain(|other| *other != id);
                if ids.is_empty() {
                    self.by_key.remove(key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::LuaScript;

    static SCRIPT: LuaScript = LuaScript::new("test", "return 1");

    fn watches(now: Instant) -> Watches {
        let mut watches = Watches::default();
        for (id, key) in [(1, "a"), (2, "b")] {
            let keys = vec![key.into(), b"both".to_vec()];
            let watch = Watch { script: &SCRIPT, keys, args: vec![], resync: Duration::from_secs(30) };
            watches.add(id, watch, Arc::default(), now);
        }
        watches
    }

    #[test]
    fn runs_at_once_then_only_for_its_own_keys_and_at_the_resync() {
        let start = Instant::now();
        let mut watches = watches(start);
        assert_eq!(watches.take_due(start, true), [1, 2]);
        assert!(watches.take_due(start, true).is_empty());
        watches.key_changed(b"a", start);
        assert_eq!(watches.take_due(start, true), [1]);
        watches.key_changed(b"both", start);
        assert_eq!(watches.take_due(start, true), [1, 2]);
        watches.replace(2, vec![b"c".to_vec()], vec![], start);
        assert_eq!(watches.take_due(start, true), [2]);
        watches.key_changed(b"both", start);
        assert_eq!(watches.take_due(start, true), [1]);
        assert_eq!(watches.take_due(start + Duration::from_secs(30), true), [1, 2]);
    }

    #[test]
    fn runs_each_second_where_changes_are_not_heard_of() {
        let start = Instant::now();
        let mut watches = watches(start);
        watches.take_due(start, false);
        assert_eq!(watches.take_due(start + POLL, false), [1, 2]);
    }

    #[test]
    fn none_waits_for_its_resync_once_changes_are_heard_of_no_more() {
        let start = Instant::now();
        let mut watches = watches(start);
        watches.take_due(start, true);
        watches.heard_no_more(start);
        assert_eq!(watches.next_due(), Some(start + POLL));
    }

    #[test]
    fn a_fight_is_slowed_down_but_its_last_change_is_answered() {
        let start = Instant::now();
        let mut watches = watches(start);
        watches.take_due(start, true);
        let mut runs = 0;
        for millisecond in 0..10_000 {
            let now = start + Duration::from_millis(millisecond);
            watches.key_changed(b"a", now);
            runs += watches.take_due(now, true).len();
        }
        assert!((60..=71).contains(&runs), "{runs} runs in 10 s: 20 in a burst and 5 a second");
        let later = start + Duration::from_millis(10_000 + 250);
        watches.key_changed(b"a", start + Duration::from_secs(10));
        assert_eq!(watches.take_due(later, true), [1]);
    }
}
