//! bind.lua, claim.lua, and the record.

use std::collections::BTreeMap;

use poolkeeper::protocol::EpochSeconds;
use poolkeeper::protocol::gocraft_work::claim::{Claimed, Claiming};
use poolkeeper::protocol::gocraft_work::record::Deed;
use poolkeeper::protocol::gocraft_work::settle::DeadPool;
use poolkeeper::reaper::binding::{Binding, Candidate};
use poolkeeper::reaper::settle::reap;

use super::fixture::{Fixture, dead, job_type};
use crate::support::redis::run;

fn binding(pod: &str) -> Binding {
    let candidate = Candidate {
        cluster: "home".into(),
        namespace: "default".into(),
        pod: pod.into(),
        pod_uid: "uid".into(),
        container: "worker".into(),
        container_id: "containerd://1".into(),
    };
    Binding { candidates: [candidate].into(), made_by: Some("mail".into()), started_at: None }
}

fn claiming(cluster: &str, name: &str, job_types: &[&str]) -> Claiming {
    Claiming {
        cluster: cluster.into(),
        namespace: "default".into(),
        name: name.into(),
        created_at: EpochSeconds(5),
        job_types: job_types.iter().map(|name| job_type(name)).collect(),
        concurrency: 10,
        hosts: [format!("{name}-1")].into(),
    }
}

#[tokio::test]
async fn bindings_are_kept_and_dropped() {
    let fixture = Fixture::new().await;
    let set = [("A".into(), binding("a-1")), ("B".into(), binding("b-1"))];
    for _ in 0..2 {
        fixture.work.bind(&set, &[]).await.unwrap();
    }
    fixture.work.bind(&[], &["A".into()]).await.unwrap();
    let bindings = fixture.observe().await.bindings;
    assert_eq!(bindings, [("B".into(), binding("b-1"))].into());
}

#[tokio::test]
async fn a_claim_without_a_concurrency_keeps_the_one_before() {
    let fixture = Fixture::new().await;
    let known = claiming("home", "mail", &["a"]);
    for (claimed, kept) in [(0, 0), (10, 10), (0, 10), (4, 4)] {
        fixture.work.claim(&Claiming { concurrency: claimed, ..known.clone() }).await.unwrap();
        assert_eq!(fixture.observe().await.claims[0].concurrency, kept, "claimed {claimed}");
    }
}

#[tokio::test]
async fn another_cluster_s_claim_is_respected_while_it_is_fresh() {
    let mut fixture = Fixture::new().await;
    let ours = claiming("home", "mail", &["a", "b"]);
    assert_eq!(fixture.work.claim(&ours).await.unwrap(), Claimed::Ours { same_cluster: vec![] });
    let twin = claiming("home", "twin", &["b"]);
    let Claimed::Ours { same_cluster } = fixture.work.claim(&twin).await.unwrap() else { panic!("ours") };
    assert_eq!(same_cluster.iter().map(|claim| claim.name.as_str()).collect::<Vec<_>>(), ["mail"]);
    let foreign = claiming("away", "mail", &["b"]);
    let Claimed::Taken { others } = fixture.work.claim(&foreign).await.unwrap() else { panic!("taken") };
    assert_eq!(others.len(), 2);
    let disjoint = claiming("away", "other", &[]);
    assert_eq!(fixture.work.claim(&disjoint).await.unwrap(), Claimed::Ours { same_cluster: vec![] });

    let claims = fixture.observe().await.claims;
    assert_eq!(claims.len(), 3);
    let mail = claims.iter().find(|claim| claim.name == "mail").unwrap();
    assert_eq!((mail.uid.as_str(), mail.concurrency, mail.job_types.len()), ("u1", 10, 2));
    assert!(mail.hosts.contains_key("mail-1") && mail.written_at.0 > 1_000);

    // Two clusters with nothing newer than five minutes: free to take.
    for field in ["home/default/mail", "home/default/twin"] {
        let text: String = fixture.line(&format!("HGET work:poolkeeper:claims {field}")).await;
        let mut claim: serde_json::Value = serde_json::from_str(&text).unwrap();
        let at = claim["writtenAt"].as_i64().unwrap() - 301;
        claim["writtenAt"] = at.into();
        claim["hosts"]["old"] = (at - 86_400).into();
        claim["hosts"]["recent"] = (at - 80_000).into();
        run::<(), _>(&mut fixture.redis, ["HSET", "work:poolkeeper:claims", field, &claim.to_string()]).await;
    }
    assert_eq!(fixture.work.claim(&foreign).await.unwrap(), Claimed::Ours { same_cluster: vec![] });
    assert!(matches!(fixture.work.claim(&ours).await.unwrap(), Claimed::Taken { .. }));

    fixture.line::<()>("HDEL work:poolkeeper:claims away/default/mail").await;
    fixture.work.claim(&ours).await.unwrap();
    let claims = fixture.observe().await.claims;
    let hosts: Vec<&String> = claims.iter().find(|claim| claim.name == "mail").unwrap().hosts.keys().collect();
    assert_eq!(hosts, ["mail-1", "recent"]);
}

#[tokio::test]
async fn a_reaping_and_a_repair_are_in_the_record() {
    let mut fixture = Fixture::new().await;
    fixture.beat("D", 1, "a").await;
    fixture.beat("L", 1, "a").await;
    fixture.running("a", "D", &["1", "2"]).await;
    fixture.locks("a", 5, &[("D", 2), ("L", 3)]).await;
    let observation = fixture.observe().await;
    let detail = serde_json::json!({"pod": "web 1", "proof": "ContainerTerminated"});
    let pool = DeadPool { detail: detail.clone(), ..dead(&["D"]).remove(0) };
    reap(&fixture.work, &observation, &[pool], &BTreeMap::default()).await.unwrap();
    let (entries, _) = fixture.work.read_record("", 100).await.unwrap();
    let Deed::Reap { job_type, pools, repaired } = &entries[0].deed else { panic!("{entries:?}") };
    assert_eq!((job_type.as_str(), *repaired, pools.len()), ("a", 1, 1));
    assert_eq!((pools[0].jobs, pools[0].locks, &pools[0].detail), (2, 2, &detail));
    assert!(matches!(&entries[1].deed, Deed::Forget { detail: kept, .. } if *kept == detail), "{entries:?}");

    fixture.line::<()>("SET work:jobs:a:lock 9").await;
    let observation = fixture.observe().await;
    let reaped = reap(&fixture.work, &observation, &[], &BTreeMap::default()).await.unwrap();
    assert_eq!(reaped.repaired.len(), 1);
    let (entries, _) = fixture.work.read_record("", 100).await.unwrap();
    let last = &entries.last().unwrap().deed;
    assert!(matches!(last, Deed::Repair { lock_before: Some(9), lock_after: Some(0), .. }), "{last:?}");
    let totals = fixture.observe().await.totals;
    assert_eq!((totals["jobs_requeued"], totals["locks_freed"], totals["pools_reaped"]), (2, 2, 1));
}

/// The record has room for 1,000 entries: a thousand deaths must not push out what the leader has not read yet.
#[tokio::test]
async fn many_deaths_are_few_entries_of_bounded_size() {
    let mut fixture = Fixture::new().await;
    let ids: Vec<String> = (0..100).map(|number| format!("pool{number:03}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    for id in &ids {
        fixture.beat(id, 1, "a").await;
        fixture.running("a", id, &["job"]).await;
    }
    let info: Vec<(&str, i64)> = ids.iter().map(|id| (*id, 1)).collect();
    fixture.locks("a", 100, &info).await;
    let observation = fixture.observe().await;
    let pools: Vec<DeadPool> = dead(&ids)
        .into_iter()
        .map(|pool| DeadPool { detail: serde_json::json!({"pod": format!("of {}", pool.id)}), ..pool })
        .collect();
    assert!(reap(&fixture.work, &observation, &pools, &BTreeMap::default()).await.unwrap().is_complete());
    let (entries, _) = fixture.work.read_record("", 100).await.unwrap();
    let [reap, forget] = &entries[..] else { panic!("{} entries", entries.len()) };
    let Deed::Reap { pools, .. } = &reap.deed else { panic!("{reap:?}") };
    let told = pools.iter().filter(|pool| !pool.detail.is_null()).count();
    assert_eq!((pools.len(), told, &pools[99].detail["pod"]), (100, 8, &"of pool099".into()));
    let Deed::Forget { pools, detail } = &forget.deed else { panic!("{forget:?}") };
    assert_eq!((pools.len(), &detail["pod"]), (100, &"of pool099".into()));
    assert_eq!(fixture.observe().await.totals["pools_reaped"], 100);
}
