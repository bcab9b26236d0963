//! Which job types are this queue's to hold, where several claim them in one Redis namespace.
//!
//! Within a cluster the older `JobQueue` wins, and the newer says so. Between clusters whoever came first holds, and
//! the other keeps its hands off: no operator can tell which of two clusters its users want to win.

use std::collections::BTreeMap;

use crate::protocol::{Claim, EpochSeconds, JobTypeName};

/// A claim that was not renewed for this long no longer counts: its operator is gone.
pub const CLAIM_LASTS_SECONDS: i64 = 300;

/// Whose a job type is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// Ours to hold.
    Us,
    /// An older `JobQueue` of this cluster names it.
    Older {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A `JobQueue` of another cluster named it first.
    OtherCluster {
        /// That cluster's name.
        cluster: String,
        /// The `JobQueue`'s namespace there.
        namespace: String,
        /// The `JobQueue`'s name there.
        name: String,
    },
}

/// For each job type of `own`, whose it is. `now` is Redis's clock, as is the time in each claim.
#[must_use]
pub fn holders(own: &Claim, claims: &[Claim], now: EpochSeconds) -> BTreeMap<JobTypeName, Holder> {
    let rivals: Vec<&Claim> = claims
        .iter()
        .filter(|claim| !same_resource(claim, own) && now.0.saturating_sub(claim.written_at.0) <= CLAIM_LASTS_SECONDS)
        .collect();
    own.job_types
        .iter()
        .map(|job| {
            let named = |claim: &&&Claim| claim.job_types.contains(job);
            let foreign = rivals.iter().filter(named).find(|claim| claim.cluster != own.cluster);
            let older = rivals
                .iter()
                .filter(named)
                .filter(|claim| claim.cluster == own.cluster && seniority(claim) < seniority(own))
                .min_by_key(|claim| seniority(claim));
            let holder = match (foreign, older) {
                (Some(claim), _) => Holder::OtherCluster {
                    cluster: claim.cluster.clone(),
                    namespace: claim.namespace.clone(),
                    name: claim.name.clone(),
                },
                (None, Some(claim)) => Holder::Older { namespace: claim.namespace.clone(), name: claim.name.clone() },
                (None, None) => Holder::Us,
            };
            (job.clone(), holder)
        })
        .collect()
}

/// The claims of other resources, of any cluster.
pub fn others<'a>(own: &'a Claim, claims: &'a [Claim]) -> impl Iterator<Item = &'a Claim> {
    claims.iter().filter(|claim| !same_resource(claim, own))
}

fn same_resource(a: &Claim, b: &Claim) -> bool {
    a.cluster == b.cluster && a.namespace == b.namespace && a.name == b.name
}

fn seniority(claim: &Claim) -> (EpochSeconds, &str, &str) {
    (claim.created_at, &claim.namespace, &claim.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(cluster: &str, name: &str, created: i64, written: i64, jobs: &[&str]) -> Claim {
        Claim {
            cluster: cluster.into(),
            namespace: "shop".into(),
            name: name.into(),
            uid: format!("uid-{name}"),
            created_at: EpochSeconds(created),
            job_types: jobs.iter().map(|job| JobTypeName::from(*job)).collect(),
            concurrency: 1,
            hosts: BTreeMap::new(),
            written_at: EpochSeconds(written),
        }
    }

    fn holder_of_mail(own: &Claim, others: &[Claim]) -> Holder {
        holders(own, others, EpochSeconds(1_000)).remove(&JobTypeName::from("mail")).unwrap()
    }

    #[test]
    fn the_older_queue_of_a_cluster_wins() {
        let old = claim("a", "old", 10, 990, &["mail"]);
        let new = claim("a", "new", 20, 990, &["mail", "sms"]);
        let both = [old.clone(), new.clone()];
        assert_eq!(holder_of_mail(&old, &both), Holder::Us);
        assert_eq!(holder_of_mail(&new, &both), Holder::Older { namespace: "shop".into(), name: "old".into() });
        assert_eq!(holders(&new, &both, EpochSeconds(1_000))[&JobTypeName::from("sms")], Holder::Us);
    }

    #[test]
    fn of_two_made_in_one_second_the_first_by_name_wins() {
        let (a, b) = (claim("a", "a", 10, 990, &["mail"]), claim("a", "b", 10, 990, &["mail"]));
        let both = [a.clone(), b.clone()];
        assert_eq!(holder_of_mail(&a, &both), Holder::Us);
        assert!(matches!(holder_of_mail(&b, &both), Holder::Older { .. }));
    }

    #[test]
    fn another_clusters_claim_keeps_our_hands_off_whatever_its_age() {
        let ours = claim("a", "ours", 10, 990, &["mail"]);
        let theirs = claim("b", "theirs", 500, 990, &["mail"]);
        assert!(matches!(holder_of_mail(&ours, &[theirs]), Holder::OtherCluster { cluster, .. } if cluster == "b"));
    }

    #[test]
    fn a_claim_that_lapsed_holds_nothing() {
        let ours = claim("a", "ours", 10, 990, &["mail"]);
        let gone = claim("b", "gone", 5, 1_000 - CLAIM_LASTS_SECONDS - 1, &["mail"]);
        assert_eq!(holder_of_mail(&ours, &[gone]), Holder::Us);
    }

    #[test]
    fn our_own_claim_is_no_rival() {
        let ours = claim("a", "ours", 10, 990, &["mail"]);
        assert_eq!(holder_of_mail(&ours, std::slice::from_ref(&ours)), Holder::Us);
    }
}
