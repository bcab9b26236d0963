//! Due entries of `scheduled` and `retry` ("Scale"): while a queue has no pods nobody moves them to their lists, so they
//! are part of its backlog.
//!
//! The script of a pass looks at the first ones of each set, in the same instant as at everything else. Where more are
//! due, such as those of a paused queue of the same namespace, a walk goes on through the others, some pages a pass. What
//! it found is told at once, and what the last complete one found until the next is complete: a count is never lower than
//! either, so that a job type does not seem to have nothing to do while a walk is on its way to it.

use std::collections::BTreeMap;

use tracing::debug;

use crate::protocol::gocraft_work::reply::Reply;
use crate::protocol::gocraft_work::{GocraftWork, scripts};
use crate::protocol::{EpochSeconds, JobTypeName, Observation};
use crate::redis::{Call, Failure, Value};

/// Entries that one page of a walk looks at, at the most.
const PAGE: usize = 500;
/// Pages of one pass, of both sets together.
const PAGES: usize = 10;
/// The largest whole number that scores can count by ones.
const LAST_SECOND: f64 = 9_007_199_254_740_992.0;

/// The whole second at which an entry with this score, as Redis writes it, is due; `None` for infinite ones. The year
/// of what lies beyond all calendars does not matter, but sums with it must not overflow.
pub(in crate::protocol::gocraft_work) fn second_of(score: &str) -> Option<EpochSeconds> {
    let score: f64 = score.parse().ok().filter(|score: &f64| score.is_finite())?;
    Some(EpochSeconds(score.ceil().clamp(0.0, LAST_SECOND) as i64))
}

/// Entries of one job type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Entries {
    due: u64,
    oldest_due_at: Option<EpochSeconds>,
    next_due_at: Option<EpochSeconds>,
}

type ByType = BTreeMap<JobTypeName, Entries>;

fn second(score: &Reply) -> Result<Option<EpochSeconds>, Failure> {
    Ok(score.text()?.as_deref().and_then(second_of))
}

fn parse_types(reply: Reply) -> Result<ByType, Failure> {
    let shape = reply.unexpected("four parts of a job type");
    let mut types = ByType::new();
    for part in reply.parts()? {
        let fields: Vec<Reply> = part.parts()?.collect();
        let [name, due, oldest, next] = <[Reply; 4]>::try_from(fields).map_err(|_| shape.clone())?;
        let entries = Entries { due: due.count()?, oldest_due_at: second(&oldest)?, next_due_at: second(&next)? };
        types.insert(JobTypeName::from(name.text()?.unwrap_or_default()), entries);
    }
    Ok(types)
}

/// One of the two sets, as the script of the pass saw it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// How many are due, how many of those it looked at, and what it found.
    Read { due: u64, looked: u64, types: Types },
    /// The key has a wrong type; names it.
    Spoiled(String),
}

/// Entries by job type.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Types(ByType);

impl Head {
    pub(super) fn parse(reply: Reply) -> Result<Self, Failure> {
        if !matches!(reply.value, Value::Array(_)) {
            return Ok(Self::Spoiled(reply.text()?.unwrap_or_default()));
        }
        let shape = reply.unexpected("three parts of a set");
        let parts: Vec<Reply> = reply.parts()?.collect();
        let [due, looked, types] = <[Reply; 3]>::try_from(parts).map_err(|_| shape)?;
        Ok(Self::Read { due: due.count()?, looked: looked.count()?, types: Types(parse_types(types)?) })
    }
}

/// Where the next page begins, in the script's words: score of the last entry, how many with that score were looked at,
/// how many there were. Empty at the beginning.
type Cursor = [String; 3];

/// One page of a walk.
struct Page {
    types: ByType,
    /// `None` at the end.
    next: Option<Cursor>,
}

impl Page {
    /// `None` where the key has a wrong type.
    fn parse(value: Value) -> Result<Option<Self>, Failure> {
        let reply = Reply::new("due", value);
        let shape = reply.unexpected("a page");
        let mut parts = reply.parts()?;
        let word = parts.next().map(|word| word.text()).transpose()?.flatten();
        if word.as_deref() == Some("spoiled") {
            return Ok(None);
        }
        let types = parse_types(parts.next().ok_or_else(|| shape.clone())?)?;
        let cursor = parts.map(|part| Ok(part.text()?.unwrap_or_default())).collect::<Result<Vec<_>, Failure>>()?;
        let cursor = Cursor::try_from(cursor).map_err(|_| shape)?;
        Ok(Some(Self { types, next: (word.as_deref() == Some("more")).then_some(cursor) }))
    }
}

/// The walk through one set, over several passes.
#[derive(Debug, Default)]
struct Walk {
    cursor: Cursor,
    found: ByType,
    complete: Option<ByType>,
}

impl Walk {
    /// Adds a page, of which only `known` job types are kept. Whether the walk is complete.
    fn add(&mut self, page: Page, known: impl Fn(&JobTypeName) -> bool) -> bool {
        for (name, entries) in page.types.into_iter().filter(|(name, _)| known(name)) {
            let found = self.found.entry(name).or_default();
            found.due = found.due.saturating_add(entries.due);
            // Entries come in the order of their scores.
            found.oldest_due_at = found.oldest_due_at.or(entries.oldest_due_at);
        }
        let Some(next) = page.next else {
            self.complete = Some(std::mem::take(&mut self.found));
            self.cursor = Cursor::default();
            return true;
        };
        self.cursor = next;
        false
    }

    /// What is known of one set in which `due` entries are due, of which `head` is the beginning.
    fn with(&self, head: ByType, due: u64) -> ByType {
        let mut all = head;
        for (name, other) in self.found.iter().chain(self.complete.iter().flatten()) {
            let entries = all.entry(name.clone()).or_default();
            entries.due = entries.due.max(other.due).min(due);
            entries.oldest_due_at = entries.oldest_due_at.into_iter().chain(other.oldest_due_at).min();
        }
        all
    }
}

/// The walks through both sets.
#[derive(Debug, Default)]
pub(super) struct Walks([Walk; 2]);

impl Walks {
    /// Goes on where the heads did not show all that is due, and adds what is known to the observation.
    pub(super) async fn add_to(&mut self, observation: &mut Observation, heads: [Head; 2], work: &GocraftWork) {
        let mut open = [false; 2];
        for ((walk, head), open) in self.0.iter_mut().zip(&heads).zip(&mut open) {
            *open = matches!(head, Head::Read { due, looked, .. } if looked < due);
            if !*open {
                *walk = Walk::default();
            }
        }
        let walked = open;
        if let Err(failure) = self.go_on(observation, open, work).await {
            // The pass itself is good. What is known stays, and is said to be not all.
            debug!(%failure, "no look at further due entries");
            observation.due_incomplete = true;
        }
        for ((walk, head), walked) in self.0.iter().zip(heads).zip(walked) {
            match head {
                Head::Spoiled(key) => observation.spoiled_sets.push(key),
                Head::Read { due, types: Types(types), .. } => {
                    observation.due_incomplete |= walked && walk.complete.is_none();
                    add(observation, walk.with(types, due));
                }
            }
        }
    }

    async fn go_on(&mut self, seen: &Observation, mut open: [bool; 2], work: &GocraftWork) -> Result<(), Failure> {
        let keys = [work.keys().scheduled(), work.keys().retry()];
        let mut pages = 0;
        while pages < PAGES && open.contains(&true) {
            for ((walk, open), key) in self.0.iter_mut().zip(&mut open).zip(&keys).filter(|((_, open), _)| **open) {
                let mut args = vec![PAGE.to_string().into_bytes()];
                args.extend(walk.cursor.iter().map(|part| part.clone().into_bytes()));
                let (value, _) = work.client().run(Call::script(&scripts::DUE, vec![key.clone()], args)).await?;
                pages += 1;
                *open = match Page::parse(value)? {
                    Some(page) => !walk.add(page, |name| seen.job_types.contains_key(name)),
                    None => false,
                };
            }
        }
        Ok(())
    }
}

/// Adds what one set holds to the job types that are observed.
fn add(observation: &mut Observation, types: ByType) {
    for (name, entries) in types {
        let Some(seen) = observation.job_types.get_mut(&name) else { continue };
        seen.due = seen.due.saturating_add(entries.due);
        seen.oldest_due_at = seen.oldest_due_at.into_iter().chain(entries.oldest_due_at).min();
        seen.next_due_at = seen.next_due_at.into_iter().chain(entries.next_due_at).min();
    }
}

#[cfg(test)]
mod tests;
