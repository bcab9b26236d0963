//! Reads the record: what this replica and others did, for the leader's Events.

use super::GocraftWork;
use super::reply::Reply;
use crate::protocol::{JobTypeName, PoolId};
use crate::redis::{Call, Failure, Value};

/// One thing done.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its id in the stream, `milliseconds-number` by Redis's clock.
    pub id: String,
    /// For which resource: `cluster/kind/namespace/name`.
    pub queue: String,
    /// What.
    pub deed: Deed,
}

/// What was done.
#[derive(Debug, Clone, PartialEq)]
pub enum Deed {
    /// Jobs of dead pools went back to the queue and their locks were freed.
    Reap {
        /// The job type.
        job_type: JobTypeName,
        /// By pool.
        pools: Vec<ReapedPool>,
        /// Other counts that were wrong.
        repaired: u64,
    },
    /// Counts were set to what runs.
    Repair {
        /// The job type.
        job_type: JobTypeName,
        /// Lock count before; `None` where it was absent.
        lock_before: Option<i64>,
        /// Lock count after.
        lock_after: Option<i64>,
        /// How many counts were wrong.
        repaired: u64,
    },
    /// Dead pools were forgotten.
    Forget {
        /// The pools.
        pools: Vec<PoolId>,
        /// Pod, proof and the like, of the last of them.
        detail: serde_json::Value,
    },
    /// A cap that somebody had changed was put back.
    CapOverwritten(Overwrite),
    /// A pause that somebody had changed was put back.
    PauseOverwritten(Overwrite),
    /// A pool that had been reaped beat again.
    Resurrected {
        /// The pool.
        pool: PoolId,
        /// Pod, proof and the like.
        detail: serde_json::Value,
    },
}

/// What one dead pool gave back of one job type.
#[derive(Debug, Clone, PartialEq)]
pub struct ReapedPool {
    /// The pool.
    pub pool: PoolId,
    /// Jobs that went back to the queue.
    pub jobs: u64,
    /// Locks freed.
    pub locks: u64,
    /// Pod, proof and the like; null for all but the last few of an entry.
    pub detail: serde_json::Value,
}

/// A put-back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overwrite {
    /// The job type.
    pub job_type: JobTypeName,
    /// The value that was there; empty for none.
    pub old: String,
    /// The cap that holds again.
    pub new: String,
    /// Jobs that ran above it at that moment.
    pub above: u64,
}

impl GocraftWork {
    /// Up to `count` entries after `after` (an entry's id; empty: from the oldest on), oldest first. Entries of a kind
    /// that this version does not know are left out; the second value is the id to go on from.
    pub async fn read_record(&self, after: &str, count: usize) -> Result<(Vec<Entry>, String), Failure> {
        let from = if after.is_empty() { "-".to_owned() } else { format!("({after}") };
        let mut command = ::redis::cmd("XRANGE");
        command.arg(self.keys.record()).arg(from).arg("+").arg("COUNT").arg(count);
        let (value, _) = self.client.run(Call::command(command)).await?;
        let mut last = after.to_owned();
        let mut entries = Vec::new();
        for item in Reply::new("XRANGE", value).parts()? {
            let shape = item.unexpected("entries");
            let mut parts = item.parts()?;
            let (Some(id), Some(fields)) = (parts.next(), parts.next()) else { return Err(shape) };
            last = id.text()?.ok_or(shape)?;
            entries.extend(entry(last.clone(), &pairs(fields)?));
        }
        Ok((entries, last))
    }
}

fn pairs(fields: Reply) -> Result<Vec<(String, String)>, Failure> {
    match fields.value {
        Value::Map(pairs) => pairs
            .into_iter()
            .map(|(field, value)| {
                let text = |value| Ok::<_, Failure>(Reply::new("XRANGE", value).text()?.unwrap_or_default());
                Ok((text(field)?, text(value)?))
            })
            .collect(),
        _ => fields.pairs(),
    }
}

fn entry(id: String, fields: &[(String, String)]) -> Option<Entry> {
    let all =
        |name: &'static str| fields.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str());
    let text = |name: &str| fields.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value.as_str());
    let number = |name: &str| text(name).parse::<i64>().ok();
    let count = |name: &str| number(name).unwrap_or_default().max(0).unsigned_abs();
    let detail = || serde_json::from_str(text("detail")).unwrap_or_default();
    let overwrite = || Overwrite {
        job_type: text("job_type").into(),
        old: text("old").to_owned(),
        new: text("new").to_owned(),
        above: count("above"),
    };
    let deed = match text("kind") {
        "reap" => Deed::Reap {
            job_type: text("job_type").into(),
            pools: all("pool").filter_map(reaped).collect(),
            repaired: count("repaired"),
        },
        "repair" => Deed::Repair {
            job_type: text("job_type").into(),
            lock_before: number("lock_before"),
            lock_after: number("lock_after"),
            repaired: count("repaired"),
        },
        "forget" => Deed::Forget { pools: all("pool").map(Into::into).collect(), detail: detail() },
        "cap_overwritten" => Deed::CapOverwritten(overwrite()),
        "pause_overwritten" => Deed::PauseOverwritten(overwrite()),
        "resurrected" => Deed::Resurrected { pool: text("pool").into(), detail: detail() },
        _ => return None,
    };
    Some(Entry { id, queue: text("queue").to_owned(), deed })
}

/// `id jobs locks detail`, as `settle.lua` writes it.
fn reaped(text: &str) -> Option<ReapedPool> {
    let mut words = text.splitn(4, ' ');
    Some(ReapedPool {
        pool: words.next()?.into(),
        jobs: words.next()?.parse().ok()?,
        locks: words.next()?.parse().ok()?,
        detail: serde_json::from_str(words.next()?).unwrap_or_default(),
    })
}
