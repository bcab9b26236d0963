//! Holds caps and pauses ("Caps stay"): what the watching connection is to run, and what its answers say.

use std::collections::BTreeMap;
use std::time::Duration;

use super::fence::{Fenced, speaker_args};
use super::reply::Reply;
use super::{GocraftWork, ScriptError, scripts};
use crate::protocol::JobTypeName;
use crate::redis::tracking::Watch;
use crate::redis::{Call, Failure, Value};

/// What one job type is held to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// The job type.
    pub job_type: JobTypeName,
    /// Max concurrency, 0 for no cap; `None` leaves what is in Redis alone.
    pub cap: Option<i64>,
    /// Whether it is paused; `None` leaves what is in Redis alone.
    pub paused: Option<bool>,
}

/// What one run of the script found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Why nothing was written; `None` when writing was allowed.
    pub fenced: Option<Fenced>,
    /// By job type, as it is after the run.
    pub job_types: BTreeMap<JobTypeName, CapHeld>,
}

/// One job type after a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CapHeld {
    /// Max concurrency in Redis; `None` where it is absent or no number.
    pub cap: Option<i64>,
    /// Whether it is paused.
    pub paused: bool,
    /// The run wrote the cap: it differed.
    pub cap_written: Option<Overwritten>,
    /// The run wrote or deleted the pause: it differed.
    pub pause_written: bool,
    /// The key has a wrong type; names it.
    pub spoiled: Option<String>,
}

/// What a run put ours in the place of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overwritten {
    /// The value that was there; `None` where the key was absent.
    pub old: Option<String>,
}

/// One put-back to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutBack {
    /// The job type.
    pub job_type: JobTypeName,
    /// What was put back.
    pub what: PutBackOf,
    /// The value that was there; empty for none.
    pub old: String,
    /// The cap that holds again; 0 for none.
    pub cap: i64,
}

/// What was put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutBackOf {
    /// A cap.
    Cap,
    /// A pause.
    Pause,
}

impl GocraftWork {
    /// The script to keep running on the tracker of [`Self::client`], for these job types.
    #[must_use]
    pub fn hold_caps(&self, desired: &[Desired], observe_only: bool, resync: Duration) -> Watch {
        let (keys, args) = self.hold_caps_input(desired, observe_only);
        Watch { script: &scripts::HOLD_CAPS, keys, args, resync }
    }

    /// Keys and arguments of the same, for [`crate::redis::tracking::Watching::replace`].
    #[must_use]
    pub fn hold_caps_input(&self, desired: &[Desired], observe_only: bool) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let mut keys = vec![self.keys.fences()];
        let mut args = speaker_args(&self.speaker);
        args.push(if observe_only { b"1".into() } else { b"0".into() });
        for one in desired {
            keys.extend([self.keys.max_concurrency(&one.job_type), self.keys.paused(&one.job_type)]);
            args.push(one.cap.map_or_else(String::new, |cap| cap.to_string()).into());
            args.push(one.paused.map_or("", |paused| if paused { "1" } else { "0" }).into());
        }
        (keys, args)
    }

    /// Reads the result of one run.
    pub fn parse_held(&self, value: Value) -> Result<Held, Failure> {
        let reply = Reply::new("hold_caps", value);
        let shape = reply.unexpected("what it holds");
        let mut parts = reply.parts()?;
        let (Some(word), Some(reason), Some(types)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(shape);
        };
        let fenced = match (word.text()?.as_deref(), reason.text()?) {
            (Some("fenced"), reason) => Some(Fenced::parse(&reason.unwrap_or_default())),
            _ => None,
        };
        let mut job_types = BTreeMap::new();
        for entry in types.parts()? {
            let fields: Vec<Reply> = entry.parts()?.collect();
            let key = fields.first().map(Reply::text).transpose()?.flatten().unwrap_or_default();
            let name = self.keys.parse_max_concurrency(&key).ok_or_else(|| shape.clone())?;
            let held = match fields.as_slice() {
                [_] => CapHeld { spoiled: Some(key), ..CapHeld::default() },
                [_, cap, paused, wrote, old, wrote_pause] => CapHeld {
                    cap: cap.number()?,
                    paused: paused.count()? > 0,
                    cap_written: (wrote.count()? > 0).then_some(Overwritten { old: old.text()? }),
                    pause_written: wrote_pause.count()? > 0,
                    spoiled: None,
                },
                _ => return Err(shape),
            };
            job_types.insert(name, held);
        }
        Ok(Held { fenced, job_types })
    }

    /// Records put-backs and counts them; returns how many jobs ran above each cap at that moment. One call for one
    /// put-back: it is the one script that counts twice when run twice.
    pub async fn record_overwrites(&self, put_back: &[PutBack]) -> Result<Vec<u64>, ScriptError> {
        let mut keys = vec![self.keys.fences(), self.keys.record(), self.keys.totals()];
        let mut args = speaker_args(&self.speaker);
        for one in put_back {
            keys.push(self.keys.lock(&one.job_type));
            args.push(match one.what {
                PutBackOf::Cap => b"cap".into(),
                PutBackOf::Pause => b"pause".into(),
            });
            args.push(one.job_type.to_bytes());
            args.push(one.old.clone().into());
            args.push(one.cap.to_string().into());
        }
        let parts = self.run_fenced(Call::script(&scripts::RECORD_OVERWRITE, keys, args), "record_overwrite").await?;
        let Some(above) = parts.into_iter().nth(1) else { return Ok(Vec::new()) };
        Ok(above.parts()?.map(|count| count.count()).collect::<Result<_, _>>()?)
    }
}
