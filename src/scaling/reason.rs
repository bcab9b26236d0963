//! A decision in one sentence, for people: what asks for how many replicas, and what keeps the target from having them.

use super::decision::{Facts, Limit, Step};
use super::demand::{Demand, Unread};
use super::growth::{Because, Recommendation};
use super::pods;
use super::rules::Rules;

/// All that a sentence is made of.
pub(super) struct Account<'a> {
    pub facts: &'a Facts<'a>,
    pub rules: &'a Rules,
    pub demand: &'a Demand,
    pub recommended: Recommendation,
    /// Recommended now, or earlier and kept.
    pub kept: i32,
    /// What makes the desired replicas others than the recommended ones.
    pub held: Option<Limit>,
    pub step: &'a Step,
    /// What makes the step a smaller one.
    pub stopped: Option<Limit>,
}

impl Account<'_> {
    /// The sentence, from a small letter on and without a full stop.
    pub fn sentence(&self) -> String {
        let parts = [Some(self.ask()), self.held.map(|limit| self.limit(limit)), self.outlook()];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    fn ask(&self) -> String {
        let replicas = counted(self.recommended.replicas, "replica");
        match self.recommended.because {
            Because::Wait => {
                let bound = self.rules.max_wait.unwrap_or_default().as_secs();
                format!("the oldest runnable job has waited longer than {bound} s, which asks for {replicas}")
            }
            Because::Unread => {
                let unread = self.facts.job_types.iter().find_map(|facts| Some((facts.name.as_str(), facts.unread?)));
                match unread {
                    Some((name, Unread::JobType)) => {
                        format!("no job is seen, but not all of job type {name:?} can be read")
                    }
                    Some((key, Unread::Set)) => format!("no job is seen, but {key:?} can't be read"),
                    Some((_, Unread::DueEntries)) | None => {
                        "no job is seen, but not all due entries were looked at yet".into()
                    }
                }
            }
            Because::Jobs if self.recommended.replicas == 0 => "no job runs or could run".into(),
            Because::Jobs if *self.step == Step::Hold => format!("the jobs ask for {replicas}"),
            Because::Jobs => {
                let Demand { runnable, running, .. } = self.demand;
                format!("{runnable} runnable and {running} running jobs ask for {replicas}")
            }
        }
    }

    /// What the step waits for.
    fn outlook(&self) -> Option<String> {
        match (self.step, self.stopped) {
            (Step::MarkBusy { .. }, _) => Some("pods are marked first, so that idle ones go".into()),
            (Step::Hold | Step::Scale(_), stopped) => stopped.map(|limit| self.limit(limit)),
        }
    }

    fn limit(&self, limit: Limit) -> String {
        let Rules { min, max, stabilization, .. } = self.rules;
        match limit {
            Limit::Min => format!("minReplicas is {min}"),
            Limit::Max => format!("maxReplicas is {max}"),
            Limit::UpRate => format!("maxScaleUpPerMinute is {}", self.rules.max_up_per_minute.unwrap_or_default()),
            Limit::Stabilization => {
                format!(
                    "kept at {} until no more are needed for {} s",
                    counted(self.kept, "replica"),
                    stabilization.as_secs()
                )
            }
            Limit::UnreadJobType => "1 replica stays".into(),
            Limit::PodsUnknown => "nothing is lowered while the pods are not known".into(),
            Limit::BusyPods => format!("waits for {}", counted(pods::busy(self.facts.pods), "busy pod")),
            Limit::BusyPodNotReady => "nothing is lowered while a busy pod is not Ready".into(),
            Limit::Rollout => "nothing is lowered during a rollout".into(),
        }
    }
}

fn counted(count: i32, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
