//! From the record in Redis to Events: what any replica did is told once, by the one that leads.
//!
//! Entries of one read are put together, so that a thousand dead pods make one Event and not a thousand.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::events::{Event, EventType, Recorder};

use crate::api::status::LastReap;
use crate::protocol::PoolId;
use crate::protocol::gocraft_work::record::{Deed, Entry, Overwrite};

/// Reasons of Events, as constants of the API.
pub mod reason {
    /// Dead workers' jobs and locks were given back.
    pub const REAPED: &str = "WorkerReaped";
    /// A dead worker without jobs or locks was forgotten.
    pub const FORGOTTEN: &str = "WorkerForgotten";
    /// With `reaping.mode: Observe`: what would have been given back.
    pub const WOULD_REAP: &str = "WouldReap";
    /// Counts were put right.
    pub const REPAIRED: &str = "LocksRepaired";
    /// Somebody overwrote a cap; ours is back.
    pub const CAP_OVERWRITTEN: &str = "CapOverwritten";
    /// Somebody changed a pause; ours is back.
    pub const PAUSE_OVERWRITTEN: &str = "PauseOverwritten";
    /// The target has more replicas.
    pub const SCALED_UP: &str = "ScaledUp";
    /// The target has fewer replicas.
    pub const SCALED_DOWN: &str = "ScaledDown";
    /// A worker that was taken for dead beats again.
    pub const LIVING_TAKEN_FOR_DEAD: &str = "LivingWorkerTakenForDead";
}

/// What came of sending Events.
pub struct Sent {
    /// The last entry of the record that was told.
    pub through: String,
    /// The last reap among them.
    pub last_reap: Option<LastReap>,
    /// Whether all were sent.
    pub complete: bool,
}

/// One Event before it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Whether a person should look.
    pub warning: bool,
    /// Its reason.
    pub reason: &'static str,
    /// What was done, and to which job type where there is one: Events of different job types stay apart by it.
    pub action: String,
    /// The pod that it is about, if any: Events of different pods stay apart.
    pub pod: Option<String>,
    /// In words.
    pub note: String,
}

/// What a record's entries say of one resource: Events, and the last reap.
#[must_use]
pub fn notices(entries: &[Entry], queue: &str) -> (Vec<Notice>, Option<LastReap>) {
    let ours: Vec<&Entry> = entries.iter().filter(|entry| entry.queue == queue).collect();
    let mut told = Vec::new();
    let (reap, last_reap) = reaped(&ours);
    told.extend(reap);
    let mut overwritten: BTreeMap<(bool, String), (u64, u64, Overwrite)> = BTreeMap::new();
    for entry in &ours {
        match &entry.deed {
            Deed::CapOverwritten(one) => count_overwrite(&mut overwritten, true, one),
            Deed::PauseOverwritten(one) => count_overwrite(&mut overwritten, false, one),
            Deed::Repair { job_type, lock_before, lock_after, repaired } => told.push(Notice {
                warning: true,
                reason: reason::REPAIRED,
                action: format!("Repair {job_type}"),
                pod: None,
                note: format!(
                    "job type {job_type}: {repaired} counts did not match the jobs that run and were put right (lock {} -> {})",
                    lock_before.unwrap_or(0),
                    lock_after.unwrap_or(0)
                ),
            }),
            Deed::Resurrected { pool, .. } => told.push(Notice {
                warning: true,
                reason: reason::LIVING_TAKEN_FOR_DEAD,
                action: "Observe".into(),
                pod: None,
                note: format!("worker pool {pool} was taken for dead and beats again: its jobs may have run twice; see docs/reaping.md"),
            }),
            Deed::Reap { .. } | Deed::Forget { .. } => {}
        }
    }
    told.extend(
        overwritten
            .into_iter()
            .map(|((is_cap, job), (times, above, last))| overwrite_notice(is_cap, &job, times, above, &last)),
    );
    (told, last_reap)
}

fn count_overwrite(all: &mut BTreeMap<(bool, String), (u64, u64, Overwrite)>, is_cap: bool, one: &Overwrite) {
    let entry = all.entry((is_cap, one.job_type.to_string())).or_insert_with(|| (0, 0, one.clone()));
    entry.0 += 1;
    entry.1 += one.above;
    entry.2 = one.clone();
}

fn overwrite_notice(is_cap: bool, job: &str, times: u64, above: u64, last: &Overwrite) -> Notice {
    let often = if times == 1 { String::new() } else { format!(" {times} times") };
    let old = if last.old.is_empty() { "nothing" } else { &last.old };
    let ran = if above > 0 { format!("; {above} jobs had started above it") } else { String::new() };
    if is_cap {
        let note =
            format!("job type {job}: the cap was overwritten{often}, last with {old}, and is {} again{ran}", last.new);
        Notice {
            warning: above > 0,
            reason: reason::CAP_OVERWRITTEN,
            action: format!("PutBack {job}"),
            pod: None,
            note,
        }
    } else {
        Notice {
            warning: false,
            reason: reason::PAUSE_OVERWRITTEN,
            action: format!("PutBack {job}"),
            pod: None,
            note: format!("job type {job}: the pause was changed{often} and is as specified again"),
        }
    }
}

/// All reaps as one Event: which workers, by which proof, what they gave back.
fn reaped(ours: &[&Entry]) -> (Option<Notice>, Option<LastReap>) {
    let (mut jobs, mut locks, mut pools) = (0_u64, 0_u64, BTreeSet::<PoolId>::new());
    let mut last: Option<(&str, &serde_json::Value)> = None;
    for entry in ours {
        match &entry.deed {
            Deed::Reap { pools: given_back, .. } => {
                for pool in given_back {
                    jobs += pool.jobs;
                    locks += pool.locks;
                    pools.insert(pool.pool.clone());
                    last = Some((&entry.id, &pool.detail));
                }
            }
            Deed::Forget { pools: forgotten, detail } => {
                pools.extend(forgotten.iter().cloned());
                last = Some((&entry.id, detail));
            }
            _ => {}
        }
    }
    let Some((id, detail)) = last else { return (None, None) };
    let word = |name: &str| detail.get(name).and_then(serde_json::Value::as_str).map(str::to_owned);
    let (proof, pod, sentence) = (word("proof"), word("pod"), word("why"));
    let others = match pools.len() {
        1 => String::new(),
        more => format!(" (and {} more)", more - 1),
    };
    let why = sentence.unwrap_or_else(|| "it is dead".into());
    let notice = Notice {
        warning: jobs + locks > 0,
        reason: if jobs + locks > 0 { reason::REAPED } else { reason::FORGOTTEN },
        action: "Reap".into(),
        pod: pod.clone(),
        note: format!("{why}{others}: {jobs} jobs went back to their queue, {locks} locks were freed"),
    };
    let reap = (jobs + locks > 0).then(|| LastReap {
        time: milliseconds(id),
        pod,
        proof: proof.unwrap_or_default(),
        pools: pools.len() as i64,
        jobs: jobs as i64,
        locks: locks as i64,
    });
    (Some(notice), reap)
}

/// A stream's id begins with milliseconds of Redis's clock.
fn milliseconds(id: &str) -> Option<Timestamp> {
    let ms: i64 = id.split('-').next()?.parse().ok()?;
    Timestamp::from_second(ms / 1000).ok()
}

/// Sends Events about `about`. What can't be sent is dropped after this one try: an Event is news, not state.
pub async fn send(recorder: &Recorder, about: &ObjectReference, notices: &[Notice]) -> Result<(), kube::Error> {
    let mut result = Ok(());
    for notice in notices {
        let event = Event {
            type_: if notice.warning { EventType::Warning } else { EventType::Normal },
            reason: notice.reason.into(),
            note: Some(cut(&notice.note, 1024)),
            action: cut(&notice.action, 128),
            secondary: notice.pod.as_ref().map(|pod| ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                namespace: about.namespace.clone(),
                name: Some(pod.clone()),
                ..ObjectReference::default()
            }),
        };
        // One that is refused must not keep the others from being told.
        result = result.and(recorder.publish(&event, about).await);
    }
    result
}

/// The text, cut to so many bytes, between characters.
fn cut(text: &str, bytes: usize) -> String {
    let end = text.char_indices().map(|(at, sign)| at + sign.len_utf8()).take_while(|end| *end <= bytes).last();
    text[..end.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::gocraft_work::record::ReapedPool;
    use serde_json::json;

    fn reap(id: &str, pool: &str, jobs: u64) -> Entry {
        let detail = json!({"proof": "ContainerEnded", "pod": "mail-1", "why": "container worker of pod mail-1 ended: OOMKilled, exit code 137"});
        let pools = vec![ReapedPool { pool: pool.into(), jobs, locks: jobs, detail }];
        Entry { id: id.into(), queue: "q".into(), deed: Deed::Reap { job_type: "mail".into(), pools, repaired: 0 } }
    }

    #[test]
    fn many_reaps_make_one_event() {
        let entries = [reap("5000-0", "a", 2), reap("6000-0", "b", 1)];
        let (told, last) = notices(&entries, "q");
        assert_eq!(told.len(), 1);
        assert!(
            told[0].note.contains("OOMKilled")
                && told[0].note.contains("3 jobs")
                && told[0].note.contains("(and 1 more)"),
            "{}",
            told[0].note
        );
        let last = last.unwrap();
        assert_eq!((last.pools, last.jobs, last.locks, last.pod.as_deref()), (2, 3, 3, Some("mail-1")));
        assert_eq!(last.time, Some(Timestamp::from_second(6).unwrap()));
    }

    #[test]
    fn what_others_did_for_another_queue_is_not_told() {
        assert_eq!(notices(&[reap("5000-0", "a", 2)], "another"), (Vec::new(), None));
    }

    #[test]
    fn overwrites_of_one_job_type_are_counted_together() {
        let one = |above| Entry {
            id: "1-1".into(),
            queue: "q".into(),
            deed: Deed::CapOverwritten(Overwrite { job_type: "mail".into(), old: "4".into(), new: "2".into(), above }),
        };
        let (told, last) = notices(&[one(0), one(2)], "q");
        assert_eq!(last, None);
        assert_eq!(told.len(), 1);
        assert!(
            told[0].note.contains("2 times") && told[0].note.contains("2 jobs had started above it"),
            "{}",
            told[0].note
        );
        assert!(told[0].warning);
    }
}
