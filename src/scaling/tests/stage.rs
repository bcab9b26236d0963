//! A queue and its target, looked at over time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::scaling::{
    Decision, Facts, History, JobTypeFacts, PodFacts, PodPhase, PodUid, Rules, Step, TargetKind, decide,
};

/// A job type with nothing to do.
pub fn job_type(name: &str) -> JobTypeFacts {
    JobTypeFacts {
        name: name.into(),
        waiting: 0,
        due: 0,
        running: 0,
        cap: None,
        locks: 0,
        paused: false,
        oldest_wait: None,
        unread: None,
    }
}

/// A pod that is Ready and idle; its uid is `uid-` and its name.
pub fn pod(name: &str) -> PodFacts {
    PodFacts {
        uid: format!("uid-{name}").into(),
        name: name.into(),
        running: 0,
        unsure: false,
        phase: PodPhase::Ready,
        deletion_cost: None,
        revision: Some("revision".into()),
    }
}

/// A pod that runs jobs.
pub fn busy(name: &str) -> PodFacts {
    PodFacts { running: 1, ..pod(name) }
}

/// 0 to 20 replicas; everything else as by default.
pub fn rules() -> Rules {
    Rules {
        min: 0,
        max: 20,
        jobs_per_replica: None,
        max_wait: None,
        stabilization: Duration::from_secs(300),
        max_up_per_minute: None,
        protect_busy: true,
    }
}

/// One job type `mail`, pods of 10 jobs each, a Deployment.
#[derive(Debug, Clone)]
pub struct Stage {
    pub types: Vec<JobTypeFacts>,
    pub pods: Vec<PodFacts>,
    pub pods_known: bool,
    pub concurrency: u32,
    pub current: i32,
    pub kind: TargetKind,
    pub rolling_out: bool,
    pub rules: Rules,
    pub history: History,
    pub now: Instant,
}

impl Stage {
    /// A target of so many replicas, all of them Ready and idle.
    pub fn new(current: i32) -> Self {
        let now = Instant::now();
        Self {
            types: vec![job_type("mail")],
            pods: (0..current).map(|index| pod(&format!("mail-{index}"))).collect(),
            pods_known: true,
            concurrency: 10,
            current,
            kind: TargetKind::Replicas,
            rolling_out: false,
            rules: rules(),
            history: History::new(now),
            now,
        }
    }

    /// The same, but what stabilization would hold has long been let go.
    pub fn without_stabilization(current: i32) -> Self {
        let mut stage = Self::new(current);
        stage.rules.stabilization = Duration::ZERO;
        stage
    }

    /// The type `mail`.
    pub fn mail(&mut self) -> &mut JobTypeFacts {
        &mut self.types[0]
    }

    /// One look; nothing is done about it.
    pub fn look(&mut self) -> Decision {
        let facts = Facts {
            job_types: &self.types,
            pods: &self.pods,
            pods_known: self.pods_known,
            concurrency: self.concurrency,
            current: self.current,
            kind: self.kind,
            rolling_out: self.rolling_out,
        };
        decide(&facts, &self.rules, &mut self.history, self.now)
    }

    /// Time passes without a look.
    pub fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// One look each second; nothing is done about them. The last decision.
    pub fn watch(&mut self, seconds: u64) -> Decision {
        for _ in 1..seconds {
            self.wait(1);
            self.look();
        }
        self.wait(1);
        self.look()
    }

    /// Carries a step out at once: new pods are Ready, and of a lowered target the last ones are gone.
    pub fn carry_out(&mut self, decision: &Decision) {
        if let Step::Scale(to) = decision.step {
            if to > self.current {
                self.history.scaled_up(self.now, to.abs_diff(self.current));
            }
            self.current = to;
            self.pods.truncate(usize::try_from(to).unwrap());
            for index in self.pods.len()..usize::try_from(to).unwrap() {
                self.pods.push(pod(&format!("mail-{index}")));
            }
        }
    }

    /// One look, carried out. The replicas after it.
    pub fn turn(&mut self) -> i32 {
        let decision = self.look();
        self.carry_out(&decision);
        self.current
    }

    /// The pods are given the costs that a step wants.
    pub fn mark(&mut self, costs: &BTreeMap<PodUid, Option<i32>>) {
        for pod in &mut self.pods {
            if let Some(cost) = costs.get(&PodUid(pod.uid.clone())) {
                pod.deletion_cost = *cost;
            }
        }
    }
}

/// The step that marks pods by their names.
pub fn marks(costs: &[(&str, Option<i32>)]) -> Step {
    let costs = costs.iter().map(|(name, cost)| (PodUid(format!("uid-{name}").into()), *cost));
    Step::MarkBusy { costs: costs.collect() }
}
