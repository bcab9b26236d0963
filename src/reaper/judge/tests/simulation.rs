//! Properties over many made-up histories of a few pods: what is true of every one of them, whatever is lost on the way.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::stage::{Stage, ended, pool, restarted, running};
use crate::protocol::{EpochSeconds, Heartbeat, JobTypeName, PoolId, PoolSeen};
use crate::reaper::host::HostKey;
use crate::reaper::pods::index::PodEvent;
use crate::reaper::pods::{STARTED_LATE, WorkerPod};
use crate::reaper::verdict::Proof;

/// How long a history lasts, in seconds; by then every fate is decided.
const LASTS: i64 = 240;
/// What happens, happens before this second.
const EVENTFUL: i64 = 100;
/// How often everything is listed anew.
const RELIST: i64 = 40;

#[derive(Debug, Clone)]
enum Turn {
    Lives,
    /// Killed, and started anew in the same pod so many seconds later.
    Killed {
        at: i64,
        again_after: i64,
    },
    /// Goes on to run, but beats no more.
    Frozen {
        at: i64,
    },
    /// Deleted, with its end seen before its object goes.
    Deleted {
        at: i64,
        grace: i64,
    },
    /// Its object goes at once; the process works on for a while.
    ForceDeleted {
        at: i64,
        lives_on: i64,
    },
}

#[derive(Debug, Clone)]
struct PodStory {
    turn: Turn,
    /// Its beats come at this second of every five.
    phase: i64,
    /// How many seconds after the first pod it started; no two at once, since processes of one host name, process id
    /// and second can't be told from each other.
    later: i64,
    /// By how many seconds its node's clock is wrong.
    skew: i64,
    /// How many seconds after the second in which its processes start its containers are reported to have started.
    started_late: i64,
    /// How many half seconds its kubelet takes to report.
    lag: i64,
    /// One bit for each event: whether it gets lost.
    lost: u8,
    /// Whether each event is followed by the one before, once more.
    stutters: bool,
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        Just(Turn::Lives),
        (10..EVENTFUL, 0..15_i64).prop_map(|(at, again_after)| Turn::Killed { at, again_after }),
        (10..EVENTFUL).prop_map(|at| Turn::Frozen { at }),
        (10..EVENTFUL, 0..31_i64).prop_map(|(at, grace)| Turn::Deleted { at, grace }),
        (10..EVENTFUL, 0..31_i64).prop_map(|(at, lives_on)| Turn::ForceDeleted { at, lives_on }),
    ]
}

fn story() -> impl Strategy<Value = PodStory> {
    let clock = (-500..500_i64, -1..=STARTED_LATE, 0..4_i64);
    (turn(), 0..5_i64, clock, any::<u8>(), any::<bool>()).prop_map(
        |(turn, phase, (skew, started_late, lag), lost, stutters)| PodStory {
            turn,
            phase,
            later: 0,
            skew,
            started_late,
            lag,
            lost,
            stutters,
        },
    )
}

/// One process and its pool: when it starts, beats for the last time at most, and ends. Whole seconds, by true time.
struct ProcessStory {
    pool: String,
    starts: i64,
    falls_silent: i64,
    ends: i64,
}

const FOREVER: i64 = i64::MAX / 2;

impl PodStory {
    fn processes(&self, name: &str) -> Vec<ProcessStory> {
        let first = |falls_silent, ends| ProcessStory {
            pool: format!("{name}-0"),
            starts: -60 + self.later,
            falls_silent,
            ends,
        };
        match self.turn {
            Turn::Lives => vec![first(FOREVER, FOREVER)],
            Turn::Frozen { at } => vec![first(at, FOREVER)],
            Turn::Killed { at, again_after } => {
                let starts = at + again_after;
                let second = ProcessStory { pool: format!("{name}-1"), starts, falls_silent: FOREVER, ends: FOREVER };
                vec![first(at, at), second]
            }
            Turn::Deleted { at, grace } => vec![first(at + grace, at + grace)],
            Turn::ForceDeleted { at, lives_on } => vec![first(at + lives_on, at + lives_on)],
        }
    }

    /// What the API server has from which half second on; `None`: no object.
    fn objects(&self, name: &str, host: &str) -> Vec<(i64, Option<WorkerPod>)> {
        let mut pod = running(name, -60 + self.started_late + self.later + self.skew);
        pod.hosts = [HostKey::of(host)].into();
        let reported = |second: i64| second * 2 + self.lag;
        let mut objects = vec![(-100, Some(pod.clone()))];
        match self.turn {
            Turn::Lives | Turn::Frozen { .. } => {}
            Turn::Killed { at, again_after } => {
                let started = at + again_after + self.started_late.max(0);
                let again = restarted(pod.clone(), Some(at + self.skew), started + self.skew);
                objects.push((reported(at), Some(ended(pod, at + self.skew))));
                objects.push((reported(at + again_after), Some(again)));
            }
            Turn::Deleted { at, grace } => {
                pod.deleting = true;
                objects.push((reported(at), Some(pod.clone())));
                objects.push((reported(at + grace), Some(ended(pod, at + grace + self.skew))));
                objects.push((reported(at + grace) + 2, None));
            }
            Turn::ForceDeleted { at, .. } => objects.push((reported(at), None)),
        }
        objects
    }
}

struct World {
    stage: Stage,
    names: Vec<String>,
    stories: Vec<PodStory>,
    hosts: Vec<String>,
}

impl World {
    fn new(stories: &[PodStory], shared: bool) -> Self {
        let names: Vec<String> = (0..stories.len()).map(|number| format!("w{number}")).collect();
        let hosts = names.iter().map(|name| if shared { "worker".into() } else { name.clone() }).collect();
        let mut stage = Stage::new();
        let all: Vec<&str> = names.iter().map(String::as_str).chain(["worker"]).collect();
        stage.claim("here", "mail", &all);
        Self { stage, names, stories: stories.to_vec(), hosts }
    }

    /// Runs the history. The answer says when each pool was first found dead, and by which proof.
    fn run(mut self) -> BTreeMap<PoolId, (i64, Proof)> {
        let mut found = BTreeMap::new();
        let mut next_look = 0.0;
        for half in 0..LASTS * 2 {
            let now = half as f64 / 2.0;
            self.stage.at(now);
            self.beats(half);
            let changed = self.tell(half);
            let judgement = if now >= next_look {
                let judgement = self.stage.look();
                next_look = now + judgement.next_look.as_secs_f64();
                judgement
            } else if changed {
                self.stage.react()
            } else {
                continue;
            };
            for (pool, proof) in judgement.dead {
                found.entry(pool.clone()).or_insert((half, proof));
                self.stage.redis.pools.remove(&pool);
                self.stage.redis.bindings.remove(&pool);
                self.stage.redis.reaped.insert(pool, self.stage.redis.redis_time);
            }
        }
        found
    }

    fn beats(&mut self, half: i64) {
        for (number, story) in self.stories.iter().enumerate() {
            let (name, host) = (&self.names[number], &self.hosts[number]);
            for process in story.processes(name) {
                let second = half / 2;
                let due = second == process.starts || (second + story.phase) % 5 == 0;
                if half % 2 != 0 || !due || second < process.starts || second >= process.falls_silent {
                    continue;
                }
                let heartbeat = Heartbeat {
                    heartbeat_at: EpochSeconds(7_000 + second + story.skew),
                    started_at: EpochSeconds(super::stage::NODE_CLOCK + process.starts + story.skew),
                    job_names: vec![JobTypeName::from("send")],
                    concurrency: 1,
                    host: host.as_str().into(),
                    pid: "1".into(),
                };
                let seen = PoolSeen { heartbeat: Some(Box::new(heartbeat)), listed: true };
                self.stage.redis.pools.insert(pool(&process.pool), seen);
            }
        }
    }

    fn tell(&mut self, half: i64) -> bool {
        let mut changed = false;
        let mut listed = Vec::new();
        for (number, story) in self.stories.iter().enumerate() {
            let objects = story.objects(&self.names[number], &self.hosts[number]);
            let current = objects.iter().rposition(|(from, _)| *from <= half).unwrap_or(0);
            listed.extend(objects[current].1.clone());
            if objects[current].0 != half || story.lost & (1 << current) != 0 {
                continue;
            }
            changed = true;
            let before = objects[current - 1].1.clone();
            match (objects[current].1.clone(), before.clone()) {
                (Some(pod), _) => self.stage.apply(pod),
                (None, Some(last)) => self.stage.pods(PodEvent::Deleted(last)),
                (None, None) => {}
            }
            if let (true, Some(before)) = (story.stutters, before) {
                self.stage.apply(before);
            }
        }
        if half % (RELIST * 2) == 0 {
            self.stage.list(listed);
            changed = true;
        }
        changed
    }
}

/// Stories of pods that started one after the other.
fn stories(most: usize) -> impl Strategy<Value = Vec<PodStory>> {
    prop::collection::vec(story(), 1..most).prop_map(|mut stories| {
        for (number, story) in stories.iter_mut().enumerate() {
            story.later = number as i64;
        }
        stories
    })
}

/// Whether any two processes have the same host name, process id and second of start, and so can't be told apart.
fn has_twins(stories: &[PodStory]) -> bool {
    let mut starts: Vec<i64> = stories
        .iter()
        .flat_map(|story| story.processes("w").into_iter().map(|process| process.starts + story.skew))
        .collect();
    starts.sort_unstable();
    starts.windows(2).any(|pair| pair[0] == pair[1])
}

/// A process that works on after its pod's object is gone can't be told from a frozen one of the same host name.
fn without_hidden_lives(story: PodStory) -> PodStory {
    match story.turn {
        Turn::ForceDeleted { at, .. } => PodStory { turn: Turn::ForceDeleted { at, lives_on: 0 }, ..story },
        _ => story,
    }
}

fn ends(stories: &[PodStory]) -> BTreeMap<PoolId, i64> {
    let processes = stories.iter().enumerate().flat_map(|(number, story)| story.processes(&format!("w{number}")));
    processes.map(|process| (pool(&process.pool), process.ends)).collect()
}

fn is_frozen(story: &PodStory) -> bool {
    matches!(story.turn, Turn::Frozen { .. })
}

/// The same histories each time, or as many others as `PROPTEST_CASES` says.
fn config() -> ProptestConfig {
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    }
    ProptestConfig { cases: 64, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// Whatever events are lost, repeated or late: in the end exactly the pools of ended processes are dead, none before
    /// its process ended, and all within the time to the next list plus 30 s.
    #[test]
    fn exactly_the_pools_of_ended_processes_are_dead_in_the_end(
        stories in stories(5),
        shared in any::<bool>(),
    ) {
        prop_assume!(!shared || !stories.iter().any(is_frozen) && !has_twins(&stories));
        let found = World::new(&stories, shared).run();
        for (pool, ends) in ends(&stories) {
            match found.get(&pool) {
                Some((half, proof)) => {
                    prop_assert!(*half >= ends * 2, "{pool} was taken for dead {proof:?} at {half}/2, ends {ends}");
                    prop_assert!(*half <= (ends + RELIST + 45) * 2, "{pool} took too long: {half}/2 after {ends}");
                }
                None => prop_assert!(ends == FOREVER, "{pool} ended at {ends} and was never found dead"),
            }
        }
    }

    /// Of a shared host name, frozen ones among them, silence reaps at most as many as have ended by then.
    #[test]
    fn no_more_of_a_shared_host_name_die_than_have_ended(stories in stories(6)) {
        let stories: Vec<PodStory> = stories.into_iter().map(without_hidden_lives).collect();
        prop_assume!(!has_twins(&stories));
        let found = World::new(&stories, true).run();
        let ends = ends(&stories);
        // Only those by this proof count: a pool that can be in ended containers alone is dead in any case.
        let by_silence: Vec<i64> =
            found.values().filter(|(_, proof)| proof.name() == "SharedHostSilent").map(|(half, _)| *half).collect();
        for half in &by_silence {
            let dead = by_silence.iter().filter(|other| *other <= half).count();
            let ended = ends.values().filter(|ends| **ends < FOREVER && **ends * 2 <= *half).count();
            prop_assert!(dead <= ended, "at {half}/2: {dead} dead of {ended} ended: {found:?}");
        }
    }

    /// How wrong each node's clock is changes no verdict, and none of its times.
    #[test]
    fn clocks_that_are_wrong_change_nothing(
        stories in stories(5),
        shared in any::<bool>(),
    ) {
        let by_name = |stories: &[PodStory]| {
            let found = World::new(stories, shared).run();
            found.into_iter().map(|(pool, (half, proof))| (pool, half, proof.name())).collect::<Vec<_>>()
        };
        prop_assume!(!shared || !stories.iter().any(is_frozen) && !has_twins(&stories));
        let right: Vec<PodStory> = stories.iter().map(|story| PodStory { skew: 0, ..story.clone() }).collect();
        if shared {
            // Of a shared host name any of the ended containers may be named; but as many die.
            prop_assert_eq!(by_name(&stories).len(), by_name(&right).len());
        } else {
            prop_assert_eq!(by_name(&stories), by_name(&right));
        }
    }
}
