//! From what a keeper knows to the status that it reports. Pure.
//!
//! What is not known is never reported as zero: while Redis is away the counts last seen stay, and a condition says why.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

use super::audit::Mismatch;
use super::scale_facts::oldest_wait;
use crate::api::condition::{
    self, CONCURRENCY_APPLIED, LOCKS_CONSISTENT, READY, RECONCILING, REDIS_REACHABLE, SCALING_ACTIVE, STALLED,
    Statement, WORKERS_AVAILABLE, WORKERS_RESPONSIVE, reason,
};
use crate::api::status::{JobQueueStatus, JobStatus, LastReap, PoolCounts, ScalingStatus, Totals};
use crate::protocol::gocraft_work::wrong_type::{self, some_of};
use crate::protocol::{JobTypeName, JobTypeSeen, Observation};

/// Something that does not hold, with its reason and a sentence that says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The condition's reason.
    pub reason: String,
    /// What is wrong and what to do.
    pub message: String,
    /// Whether only a person can mend it.
    pub stalled: bool,
}

/// What stops a keeper from managing its resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halt {
    /// The annotation `poolkeeper.dev/paused`.
    Paused,
    /// The resource is being deleted.
    Deleting,
}

/// Something that is not known yet, holds, or doesn't.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State<T> {
    /// Not known yet.
    Pending,
    /// It holds.
    Good(T),
    /// It doesn't.
    Bad(Problem),
}

impl<T> State<T> {
    fn is_good(&self) -> bool {
        matches!(self, Self::Good(_))
    }

    fn problem(&self) -> Option<&Problem> {
        if let Self::Bad(problem) = self { Some(problem) } else { None }
    }
}

/// How caps are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// No job type asks for a cap or a pause.
    Nothing,
    /// Redis tells of every change.
    Tracked,
    /// Redis does not tell; caps are looked at every second.
    Polled,
}

/// What is known of the workers' pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workers {
    /// The resource names none.
    Outsiders,
    /// Pods of a scale target.
    Pods {
        /// How many there are, not counting those that ended.
        replicas: i32,
        /// Their label selector.
        selector: String,
    },
}

/// All that a status is made of.
pub struct Facts<'a> {
    /// `metadata.generation` of the resource.
    pub generation: i64,
    /// Now, for transition times.
    pub now: Timestamp,
    /// What stops management.
    pub halt: Option<Halt>,
    /// Whether Redis answers.
    pub redis: &'a State<()>,
    /// Whether caps are held.
    pub caps: &'a State<Holding>,
    /// Whether the workers are known.
    pub workers: &'a State<Workers>,
    /// The last read of Redis.
    pub observation: Option<&'a Observation>,
    /// The job types that are this queue's.
    pub own_types: &'a BTreeSet<JobTypeName>,
    /// Counts that don't match.
    pub mismatches: &'a BTreeMap<JobTypeName, Mismatch>,
    /// Pools by what is known of them.
    pub pools: PoolCounts,
    /// Workers that run and say nothing, and host names that several share: sentences for the condition.
    pub unresponsive: Option<Problem>,
    /// Whether the workers are sized, and what a person should mend though they are; and what was decided. `None` where
    /// that is not asked for.
    pub scaling: Option<(State<Option<String>>, Option<ScalingStatus>)>,
    /// The last reap, newer than what the status before has.
    pub last_reap: Option<LastReap>,
    /// The last entry of the record that Events were made of.
    pub recorded_through: Option<String>,
}

/// The status that `facts` make, after `before`.
#[must_use]
pub fn status(facts: &Facts<'_>, before: &JobQueueStatus) -> JobQueueStatus {
    let mut next = before.clone();
    next.observed_generation = Some(facts.generation);
    next.conditions = condition::conditions(&statements(facts), &before.conditions, facts.generation, facts.now);
    if let Some(observation) = facts.observation {
        next.jobs = facts
            .own_types
            .iter()
            .map(|name| {
                observation.job_types.get(name).map_or_else(
                    || JobStatus { name: name.to_string(), ..JobStatus::default() },
                    |seen| job_status(name, seen, observation),
                )
            })
            .collect();
        next.waiting = next.jobs.iter().map(|job| job.waiting).sum();
        next.runnable = next.jobs.iter().map(|job| job.runnable).sum();
        next.running = next.jobs.iter().map(|job| job.running).sum();
        next.totals = totals(&observation.totals);
        next.pools = facts.pools.clone();
    }
    if let State::Good(workers) = facts.workers {
        (next.replicas, next.selector) = match workers {
            Workers::Outsiders => (0, None),
            Workers::Pods { replicas, selector } => (*replicas, Some(selector.clone())),
        };
    }
    match &facts.scaling {
        None => next.scaling = None,
        Some((_, None)) => {}
        Some((_, Some(decided))) => {
            let before = next.scaling.take().and_then(|before| before.last_scale_time);
            let last_scale_time = decided.last_scale_time.or(before);
            next.scaling = Some(ScalingStatus { last_scale_time, ..decided.clone() });
        }
    }
    if facts.last_reap.is_some() {
        next.last_reap.clone_from(&facts.last_reap);
    }
    if facts.recorded_through.is_some() {
        next.recorded_through.clone_from(&facts.recorded_through);
    }
    next
}

/// Jobs of a type that could start now: none while it is paused, and no more than its cap leaves free.
#[must_use]
pub fn runnable(seen: &JobTypeSeen) -> u64 {
    let backlog = seen.waiting.saturating_add(seen.due);
    match seen.cap {
        _ if seen.paused => 0,
        Some(cap) if cap > 0 => backlog.min(u64::try_from(cap - seen.lock).unwrap_or(0)),
        _ => backlog,
    }
}

fn job_status(name: &JobTypeName, seen: &JobTypeSeen, observation: &Observation) -> JobStatus {
    JobStatus {
        name: name.to_string(),
        waiting: seen.waiting as i64,
        due: seen.due as i64,
        runnable: runnable(seen) as i64,
        running: seen.running() as i64,
        max_concurrency: seen.cap.unwrap_or(0),
        locks: seen.lock,
        paused: seen.paused,
        oldest_wait_seconds: oldest_wait(seen, observation).map(|seconds| seconds as i64),
        problem: seen.spoiled.as_ref().map(|key| wrong_type::advice(Some(name), key)),
    }
}

fn totals(counted: &BTreeMap<String, i64>) -> Totals {
    let of = |name: &str| counted.get(name).copied().unwrap_or(0);
    Totals {
        pools_reaped: of("pools_reaped"),
        jobs_requeued: of("jobs_requeued"),
        locks_freed: of("locks_freed"),
        repairs: of("counts_repaired"),
        caps_overwritten: of("caps_overwritten") + of("pauses_overwritten"),
        jobs_above_cap: of("ran_above_cap"),
    }
}

fn statements(facts: &Facts<'_>) -> Vec<Statement> {
    let redis = match facts.redis {
        State::Pending => Statement::unknown(REDIS_REACHABLE, reason::FIRST_PASS, "Redis was not asked yet"),
        State::Good(()) => Statement::yes(REDIS_REACHABLE, reason::CONNECTED, "Redis answers"),
        State::Bad(problem) => Statement::no(REDIS_REACHABLE, &problem.reason, &problem.message),
    };
    let caps = match facts.caps {
        State::Pending => Statement::unknown(CONCURRENCY_APPLIED, reason::PUSHING, "caps were not pushed yet"),
        State::Good(Holding::Nothing) => {
            Statement::yes(CONCURRENCY_APPLIED, reason::NOTHING_TO_HOLD, "no job type has a maxConcurrency or paused")
        }
        State::Good(Holding::Tracked) => {
            Statement::yes(CONCURRENCY_APPLIED, reason::HELD, "Redis tells of every change, and it is undone at once")
        }
        State::Good(Holding::Polled) => Statement::yes(
            CONCURRENCY_APPLIED,
            reason::POLLED,
            "Redis does not let poolkeeper track keys (CLIENT TRACKING), so caps are looked at every second",
        ),
        State::Bad(problem) => Statement::no(CONCURRENCY_APPLIED, &problem.reason, &problem.message),
    };
    let workers = match facts.workers {
        State::Pending => Statement::unknown(
            WORKERS_AVAILABLE,
            reason::LOOKING_FOR_WORKERS,
            "the worker pods were not looked for yet",
        ),
        State::Good(Workers::Outsiders) => Statement::yes(
            WORKERS_AVAILABLE,
            reason::OUTSIDERS_ONLY,
            "spec.workers is absent: only a worker's silence can tell that it is dead",
        ),
        State::Good(Workers::Pods { .. }) => {
            Statement::yes(WORKERS_AVAILABLE, reason::WORKERS_FOUND, "the worker pods are known")
        }
        State::Bad(problem) => Statement::no(WORKERS_AVAILABLE, &problem.reason, &problem.message),
    };
    let responsive = match &facts.unresponsive {
        _ if facts.observation.is_none() => {
            Statement::unknown(WORKERS_RESPONSIVE, reason::FIRST_PASS, "no heartbeat was read yet")
        }
        None => Statement::yes(WORKERS_RESPONSIVE, reason::BEATING, "all workers that run beat"),
        Some(problem) if problem.reason == reason::SHARED_HOST_NAME => {
            Statement::yes(WORKERS_RESPONSIVE, reason::SHARED_HOST_NAME, &problem.message)
        }
        Some(problem) => Statement::no(WORKERS_RESPONSIVE, &problem.reason, &problem.message),
    };
    let mut all =
        vec![ready(facts), reconciling(facts), stalled(facts), redis, caps, workers, locks(facts), responsive];
    all.extend(facts.scaling.as_ref().map(|(state, _)| scaling(facts, state)));
    if facts.halt == Some(Halt::Paused) {
        all.truncate(3);
    }
    all
}

fn scaling(facts: &Facts<'_>, state: &State<Option<String>>) -> Statement {
    const FOLLOWS: &str = "the number of workers follows the work";
    if let Some(problem) = facts.redis.problem() {
        let message = format!("nothing is scaled while Redis can't be read: {}", problem.message);
        return Statement::no(SCALING_ACTIVE, &problem.reason, message);
    }
    match state {
        State::Pending => Statement::unknown(SCALING_ACTIVE, reason::FIRST_PASS, "nothing was decided yet"),
        State::Good(None) => Statement::yes(SCALING_ACTIVE, reason::FOLLOWS_THE_WORK, FOLLOWS),
        State::Good(Some(but)) => {
            Statement::yes(SCALING_ACTIVE, reason::AUTOSCALERS_FORBIDDEN, format!("{FOLLOWS}; but {but}"))
        }
        State::Bad(problem) => Statement::no(SCALING_ACTIVE, &problem.reason, &problem.message),
    }
}

fn locks(facts: &Facts<'_>) -> Statement {
    let Some(observation) = facts.observation else {
        return Statement::unknown(LOCKS_CONSISTENT, reason::FIRST_PASS, "lock counts were not read yet");
    };
    let unread: Vec<String> = wrong_type::spoiled(observation, facts.own_types).collect();
    if !unread.is_empty() {
        let message = format!("{}; locks of other job types are looked after", some_of(&unread));
        return Statement::no(LOCKS_CONSISTENT, reason::WRONG_KEY_TYPE, message);
    }
    if facts.pools.dead > 0 {
        return Statement::no(
            LOCKS_CONSISTENT,
            reason::REPAIRING,
            "dead workers hold locks or jobs that are being given back",
        );
    }
    if facts.mismatches.is_empty() {
        return Statement::yes(LOCKS_CONSISTENT, reason::CONSISTENT, "every lock belongs to a job that runs");
    }
    let list: Vec<String> = facts
        .mismatches
        .iter()
        .take(5)
        .map(|(job, m)| format!("{job}: lock {}, lock_info {}, in progress {}", m.lock, m.lock_info, m.in_progress))
        .collect();
    Statement::no(
        LOCKS_CONSISTENT,
        reason::REPAIRING,
        format!("counts don't match the jobs that run ({})", list.join("; ")),
    )
}

fn problems<'a>(facts: &'a Facts<'_>) -> impl Iterator<Item = &'a Problem> {
    let scaling = facts.scaling.as_ref().and_then(|(state, _)| state.problem());
    [facts.redis.problem(), facts.workers.problem(), facts.caps.problem(), scaling].into_iter().flatten()
}

fn ready(facts: &Facts<'_>) -> Statement {
    match facts.halt {
        Some(Halt::Paused) => {
            return Statement::no(
                READY,
                reason::PAUSED,
                format!("the annotation {} stops all management", crate::api::PAUSED_ANNOTATION),
            );
        }
        Some(Halt::Deleting) => {
            return Statement::no(
                READY,
                reason::DELETING,
                "waiting for the workers to end and for what they held to be given back",
            );
        }
        None => {}
    }
    if let Some(problem) = problems(facts).next() {
        return Statement::no(READY, &problem.reason, &problem.message);
    }
    if facts.redis.is_good() && facts.caps.is_good() && facts.workers.is_good() {
        return Statement::yes(READY, reason::AS_SPECIFIED, "caps are held and workers are looked after");
    }
    Statement::no(READY, reason::FIRST_PASS, "the first pass has not ended yet")
}

fn reconciling(facts: &Facts<'_>) -> Statement {
    let pending = matches!(facts.redis, State::Pending)
        || matches!(facts.caps, State::Pending)
        || matches!(facts.workers, State::Pending);
    if facts.halt == Some(Halt::Deleting) {
        return Statement::yes(RECONCILING, reason::DELETING, "waiting for the workers to end");
    }
    if facts.halt.is_some() {
        return Statement::no(RECONCILING, reason::PAUSED, "management is stopped");
    }
    match problems(facts).next() {
        Some(problem) if !problem.stalled => {
            Statement::yes(RECONCILING, &problem.reason, "trying again until it succeeds")
        }
        None if pending => Statement::yes(RECONCILING, reason::FIRST_PASS, "the first pass has not ended yet"),
        _ => Statement::no(RECONCILING, reason::SETTLED, "nothing is under way"),
    }
}

fn stalled(facts: &Facts<'_>) -> Statement {
    match problems(facts).find(|problem| problem.stalled) {
        Some(problem) if facts.halt.is_none() => Statement::yes(STALLED, &problem.reason, &problem.message),
        _ => Statement::no(STALLED, reason::NOT_STALLED, "nothing needs a person"),
    }
}

#[cfg(test)]
mod tests;
