//! One queue's way to its Redis namespace: for whom it speaks, what it claims, and what it remembers between passes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::ResourceExt;
use tokio::time::Instant;

use super::caps::desired;
use crate::api::job_queue::JobQueue;
use crate::protocol::gocraft_work::cap::Desired;
use crate::protocol::gocraft_work::claim::{Claimed, Claiming};
use crate::protocol::gocraft_work::{FenceOp, GocraftWork, Namespace, Observer, ScriptError, Sweep};
use crate::protocol::{Claim, EpochSeconds, JobTypeName, Speaker};
use crate::redis::{Client, Endpoint};

/// How often a claim is renewed: well within the time after which it lapses.
const CLAIM_EVERY: Duration = Duration::from_secs(60);
/// How often the fence of a paused resource is put in place again, since a flushed Redis forgets it.
const HOLD_EVERY: Duration = Duration::from_secs(15);

/// A queue's namespace in one Redis.
pub struct Link {
    /// The scripts.
    pub work: GocraftWork,
    /// One atomic read a pass.
    pub observer: Observer,
    /// Looks for lists that nothing names.
    pub sweep: Sweep,
    /// What is, or is about to be, claimed.
    pub claiming: Claiming,
    /// Claims of other clusters that kept ours from being written.
    pub taken_by: Vec<Claim>,
    claimed: Option<(Claiming, Instant)>,
    fence: Fence,
}

/// What this replica last did to the resource's fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fence {
    Untouched,
    Open { generation: i64 },
    Held { since: Instant },
}

/// What a deleted resource needs of a link, in a task of its own.
#[derive(Clone)]
pub struct Goodbye {
    work: GocraftWork,
    claim_field: String,
}

impl Link {
    /// A link that has not spoken yet.
    #[must_use]
    pub fn new(client: Client, cluster: &str, queue: &JobQueue) -> Self {
        let (namespace, name) = (queue.namespace().unwrap_or_default(), queue.name_any());
        let speaker = Speaker {
            field: format!("{cluster}/JobQueue/{namespace}/{name}"),
            uid: queue.uid().unwrap_or_default(),
            generation: queue.metadata.generation.unwrap_or(0),
        };
        let created = queue.creation_timestamp().map_or(0, |time| time.0.as_second());
        let mut link = Self {
            work: GocraftWork::new(client, Namespace::new(&queue.spec.gocraft_work.namespace), speaker),
            observer: Observer::default(),
            sweep: Sweep::default(),
            claiming: Claiming {
                cluster: cluster.to_owned(),
                namespace,
                name,
                created_at: EpochSeconds(created),
                job_types: BTreeSet::new(),
                concurrency: 0,
                hosts: BTreeSet::new(),
            },
            taken_by: Vec::new(),
            claimed: None,
            fence: Fence::Untouched,
        };
        link.speak_for(queue);
        link
    }

    /// Where it leads.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        self.work.client().endpoint()
    }

    /// Speaks for this version of the resource from now on.
    pub fn speak_for(&mut self, queue: &JobQueue) {
        let generation = queue.metadata.generation.unwrap_or(0);
        self.work.set_speaker(Speaker { generation, ..self.work.speaker().clone() });
        let named: BTreeSet<JobTypeName> =
            queue.spec.jobs.iter().map(|job| JobTypeName::from(job.name.as_str())).collect();
        self.observer.name_job_types(named);
        self.observer.count_due(queue.spec.scaling.is_some());
        self.claiming.job_types = desired(queue).into_iter().map(|one| one.job_type).collect();
    }

    /// Makes this version of the resource the one that is enforced. A pause that is over is lifted by whoever sees that
    /// it is, also at its start; a new version alone lifts none.
    pub async fn open_fence(&mut self) -> Result<(), ScriptError> {
        let generation = self.work.speaker().generation;
        let op = match self.fence {
            Fence::Open { generation: opened } if opened == generation => return Ok(()),
            Fence::Open { .. } => FenceOp::Advance,
            Fence::Untouched | Fence::Held { .. } => FenceOp::Resume,
        };
        self.work.fence(op).await?;
        self.fence = Fence::Open { generation };
        Ok(())
    }

    /// The API server says that the resource is not paused, whatever Redis says: the next pass lifts the pause.
    pub fn lift_pause(&mut self) {
        self.fence = Fence::Untouched;
    }

    /// Stops every replica from writing for the resource while it is paused.
    pub async fn hold_fence(&mut self) -> Result<(), ScriptError> {
        if let Fence::Held { since } = self.fence
            && since.elapsed() < HOLD_EVERY
        {
            return Ok(());
        }
        self.work.fence(FenceOp::Hold).await?;
        self.fence = Fence::Held { since: Instant::now() };
        Ok(())
    }

    /// Writes or renews the claim where it is due.
    pub async fn claim(&mut self) -> Result<(), ScriptError> {
        let due = match &self.claimed {
            Some((claimed, at)) => claimed != &self.claiming || at.elapsed() >= CLAIM_EVERY,
            None => true,
        };
        if !due {
            return Ok(());
        }
        self.taken_by = match self.work.claim(&self.claiming).await? {
            Claimed::Ours { .. } => Vec::new(),
            Claimed::Taken { others } => others,
        };
        self.claimed = Some((self.claiming.clone(), Instant::now()));
        Ok(())
    }

    /// Our own claim, as rivals see it.
    #[must_use]
    pub fn own_claim(&self) -> Claim {
        Claim {
            cluster: self.claiming.cluster.clone(),
            namespace: self.claiming.namespace.clone(),
            name: self.claiming.name.clone(),
            uid: self.work.speaker().uid.clone(),
            created_at: self.claiming.created_at,
            job_types: self.claiming.job_types.clone(),
            concurrency: self.claiming.concurrency,
            hosts: BTreeMap::new(),
            written_at: EpochSeconds(0),
        }
    }

    /// What is needed to say goodbye.
    #[must_use]
    pub fn goodbye(&self) -> Goodbye {
        Goodbye { work: self.work.clone(), claim_field: self.claiming.field() }
    }
}

impl Goodbye {
    /// Drops the claim, takes back what was pushed, and retires the resource: nobody can enforce it any more.
    pub async fn say(&self, pushed: &[Desired]) -> Result<(), ScriptError> {
        self.work.release(&self.claim_field, pushed).await.map(|_| ())
    }
}
