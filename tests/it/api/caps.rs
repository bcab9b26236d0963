//! Caps and pauses in Redis are the resource's, whoever writes there.

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use poolkeeper::api::job_queue::JobQueue;
use serde_json::json;

use super::Stage;
use crate::support::kube::{condition, wait_for, wait_or};

#[tokio::test]
async fn c09_a_starting_worker_that_overwrites_the_cap_is_put_right() {
    let stage = Stage::new("caps").await;
    let _operator = stage.operator().await;
    stage
        .namespace
        .job_queue("reports", stage.spec(json!({"jobs": [{"name": "report", "maxConcurrency": 5}]})))
        .await
        .unwrap();
    stage.namespace.status("reports", "caps held", |s| condition(s, "ConcurrencyApplied") == ("True", "Held")).await;
    assert_eq!(stage.pools.cap("report").await.as_deref(), Some("5"));
    for _ in 0..3 {
        stage.pools.set("jobs:report:max_concurrency", "0").await;
        wait_for("the cap to be back", Duration::from_secs(5), || async {
            (stage.pools.cap("report").await.as_deref() == Some("5")).then_some(())
        })
        .await;
    }
    stage.namespace.status("reports", "three overwrites counted", |s| s.totals.caps_overwritten == 3).await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn a_changed_cap_and_a_pause_are_pushed_and_an_absent_field_leaves_redis_alone() {
    let stage = Stage::new("pushes").await;
    stage.pools.set("jobs:mail:max_concurrency", "7").await;
    stage.pools.set("jobs:sms:paused", "by hand").await;
    let _operator = stage.operator().await;
    let jobs = |mail: serde_json::Value, sms: serde_json::Value| stage.spec(json!({"jobs": [mail, sms]}));
    stage
        .namespace
        .job_queue("q", jobs(json!({"name": "mail", "paused": true}), json!({"name": "sms", "maxConcurrency": 3})))
        .await
        .unwrap();
    stage
        .namespace
        .status("q", "as specified", |s| {
            s.jobs.iter().any(|j| j.name == "mail" && j.paused && j.max_concurrency == 7)
                && s.jobs.iter().any(|j| j.name == "sms" && j.paused && j.max_concurrency == 3)
        })
        .await;
    stage
        .namespace
        .job_queue("q", jobs(json!({"name": "mail", "paused": false, "maxConcurrency": 0}), json!({"name": "sms"})))
        .await
        .unwrap();
    stage
        .namespace
        .status("q", "as specified anew", |s| {
            s.jobs.iter().any(|j| j.name == "mail" && !j.paused && j.max_concurrency == 0)
                && s.jobs.iter().any(|j| j.name == "sms" && j.paused && j.max_concurrency == 3)
        })
        .await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn release_takes_back_what_was_pushed_and_retain_leaves_it() {
    let stage = Stage::new("release").await;
    let _operator = stage.operator().await;
    for (name, policy) in [("kept", "Retain"), ("freed", "Release")] {
        let spec = stage.spec(json!({"jobs": [{"name": name, "maxConcurrency": 5}], "deletionPolicy": policy}));
        stage.namespace.job_queue(name, spec).await.unwrap();
        stage
            .namespace
            .status(name, "caps held", |s| {
                condition(s, "ConcurrencyApplied").0 == "True" && condition(s, "Ready").0 == "True"
            })
            .await;
    }
    let queues = stage.namespace.api::<JobQueue>();
    for name in ["kept", "freed"] {
        queues.delete(name, &DeleteParams::default()).await.unwrap();
        wait_for("the queue to go", Duration::from_secs(30), || async {
            queues.get_opt(name).await.ok()?.is_none().then_some(())
        })
        .await;
    }
    assert_eq!(stage.pools.cap("kept").await.as_deref(), Some("5"));
    assert_eq!(stage.pools.cap("freed").await, None);
    stage.namespace.delete().await;
}

#[tokio::test]
async fn the_older_of_two_queues_holds_a_job_type_and_the_newer_says_so() {
    let stage = Stage::new("rivals").await;
    let _operator = stage.operator().await;
    stage
        .namespace
        .job_queue("older", stage.spec(json!({"jobs": [{"name": "mail", "maxConcurrency": 2}]})))
        .await
        .unwrap();
    stage.namespace.status("older", "caps held", |s| condition(s, "ConcurrencyApplied").0 == "True").await;
    stage
        .namespace
        .job_queue("younger", stage.spec(json!({"jobs": [{"name": "mail", "maxConcurrency": 9}]})))
        .await
        .unwrap();
    let status = stage
        .namespace
        .status("younger", "the condition", |s| condition(s, "ConcurrencyApplied") == ("False", "NamedByOlderJobQueue"))
        .await;
    assert_eq!(condition(&status, "Stalled").0, "True");
    assert_eq!(stage.pools.cap("mail").await.as_deref(), Some("2"));
    stage.namespace.delete().await;
}

#[tokio::test]
async fn the_annotation_stops_all_management_and_its_end_brings_it_back() {
    let stage = Stage::new("paused").await;
    let _operator = stage.operator().await;
    stage.namespace.job_queue("q", stage.spec(json!({"jobs": [{"name": "mail", "maxConcurrency": 2}]}))).await.unwrap();
    stage.namespace.status("q", "caps held", |s| condition(s, "ConcurrencyApplied").0 == "True").await;
    let queues = stage.namespace.api::<JobQueue>();
    let annotate = |value: serde_json::Value| json!({"metadata": {"annotations": {"poolkeeper.dev/paused": value}}});
    queues.patch("q", &PatchParams::default(), &Patch::Merge(&annotate(json!("true")))).await.unwrap();
    stage.namespace.status("q", "paused", |s| condition(s, "Ready") == ("False", "Paused")).await;
    stage.pools.set("jobs:mail:max_concurrency", "9").await;
    let changed = wait_or(Duration::from_secs(3), || async {
        (stage.pools.cap("mail").await.as_deref() != Some("9")).then_some(())
    })
    .await;
    assert!(changed.is_none(), "a cap was put back while management is stopped");
    queues.patch("q", &PatchParams::default(), &Patch::Merge(&annotate(serde_json::Value::Null))).await.unwrap();
    stage.namespace.status("q", "managed again", |s| condition(s, "Ready").0 == "True").await;
    wait_for("the cap to be back", Duration::from_secs(5), || async {
        (stage.pools.cap("mail").await.as_deref() == Some("2")).then_some(())
    })
    .await;
    stage.namespace.delete().await;
}
