//! Says which job types a resource manages, and hears of others that say the same.

use std::collections::BTreeSet;

use super::fence::speaker_args;
use super::reply::Reply;
use super::{GocraftWork, ScriptError, scripts};
use crate::protocol::{Claim, EpochSeconds, JobTypeName};
use crate::redis::{Call, Failure};

/// What a resource claims. Cluster and uid are the speaker's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claiming {
    /// Name of our cluster.
    pub cluster: String,
    /// Kubernetes namespace of the resource.
    pub namespace: String,
    /// Name of the resource.
    pub name: String,
    /// Its creation time.
    pub created_at: EpochSeconds,
    /// Job types whose cap or pause it holds.
    pub job_types: BTreeSet<JobTypeName>,
    /// Jobs that one of its pods runs at once; 0: not known, so that what was claimed last stays.
    pub concurrency: u32,
    /// Host names of its pods now; Redis keeps them for a day.
    pub hosts: BTreeSet<String>,
}

impl Claiming {
    /// The claim's field: `cluster/namespace/name`.
    #[must_use]
    pub fn field(&self) -> String {
        format!("{}/{}/{}", self.cluster, self.namespace, self.name)
    }
}

/// What came of claiming.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// Ours is written. These of the same cluster name one of the same job types: the older wins.
    Ours {
        /// Claims of other resources of this cluster.
        same_cluster: Vec<Claim>,
    },
    /// Ours is not written: these of other clusters, renewed within 5 minutes, name one of the same job types.
    Taken {
        /// Claims of other clusters.
        others: Vec<Claim>,
    },
}

impl GocraftWork {
    /// Writes our claim, or renews it, unless another cluster has it.
    pub async fn claim(&self, claiming: &Claiming) -> Result<Claimed, ScriptError> {
        let mut claim = serde_json::json!({
            "cluster": claiming.cluster,
            "namespace": claiming.namespace,
            "name": claiming.name,
            "uid": self.speaker.uid,
            "createdAt": claiming.created_at,
            "jobTypes": claiming.job_types,
        })
        .to_string();
        // The script adds concurrency, hosts and time.
        claim.pop();
        let mut args = speaker_args(&self.speaker);
        args.extend([claiming.field().into(), claiming.cluster.clone().into(), claim.into()]);
        args.push(claiming.concurrency.to_string().into());
        args.push(claiming.job_types.len().to_string().into());
        args.extend(claiming.job_types.iter().map(|name| name.as_str().into()));
        args.extend(claiming.hosts.iter().map(|host| host.clone().into()));
        let keys = vec![self.keys.claims(), self.keys.fences()];
        let mut parts = self.run_fenced(Call::script(&scripts::CLAIM, keys, args), "claim").await?.into_iter();
        let word = parts.next().map(|word| word.text()).transpose()?.flatten().unwrap_or_default();
        let claims = parts.next().map(Reply::texts).transpose()?.unwrap_or_default();
        let claims = claims.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
        match word.as_str() {
            "claimed" => Ok(Claimed::Ours { same_cluster: claims }),
            "taken" => Ok(Claimed::Taken { others: claims }),
            _ => Err(Failure::unexpected("script claim answered something other than a claim").into()),
        }
    }
}
