//! From zero and up: the number of workers follows the work that can run now.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use poolkeeper::api::job_queue::JobQueue;
use serde_json::{Value, json};

use super::Stage;
use crate::support::kube::{condition, wait_for};
use crate::support::pods::{deployment, now, pods_of, runs};
use crate::support::pools::job;
use crate::support::redis::{line, run};

/// A spec that scales the Deployment `w`; `scaling` is laid over a maximum of 20.
pub fn scaled(stage: &Stage, scaling: impl Into<Value>) -> Value {
    let mut wanted = json!({"maxReplicas": 20});
    for (field, value) in scaling.into().as_object().expect("fields") {
        wanted[field] = value.clone();
    }
    stage.spec(json!({
        "jobs": [{"name": "mail"}],
        "workers": {"scaleTargetRef": {"kind": "Deployment", "name": "w"}},
        "scaling": wanted,
    }))
}

impl Stage {
    /// More jobs wait.
    pub async fn push(&self, job_type: &str, count: usize) {
        let mut redis = self.pools.redis.clone();
        run::<(), _>(&mut redis, ["SADD", "work:known_jobs", job_type]).await;
        let jobs: Vec<String> = (0..count).map(|n| job(job_type, &format!("{job_type}{n}"))).collect();
        let key = format!("work:jobs:{job_type}");
        run::<(), _>(&mut redis, ["LPUSH", &key].into_iter().chain(jobs.iter().map(String::as_str))).await;
    }

    /// Replicas that the Deployment `w` is asked for.
    pub async fn replicas(&self) -> i32 {
        self.namespace.api::<Deployment>().get("w").await.expect("w").spec.replicas.unwrap_or(1)
    }

    /// Waits until the Deployment `w` is asked for so many.
    pub async fn until_replicas(&self, wanted: i32, bound: Duration) {
        wait_for(&format!("{wanted} replicas"), bound, || async { (self.replicas().await == wanted).then_some(()) })
            .await;
    }

    /// Waits until the queue says that it scales.
    pub async fn until_it_scales(&self, queue: &str) {
        self.namespace.status(queue, "scaling", |s| condition(s, "ScalingActive").0 == "True").await;
    }

    /// Passes of the operator go by: each of them decided again.
    pub async fn passes(&self, operator: &crate::support::operator::Operator, queue: &str, count: u32) {
        let metric = format!("poolkeeper_passes_total{{namespace=\"{}\",jobqueue=\"{queue}\"}} ", self.namespace.name);
        let before = operator.metric(&metric).await.unwrap_or(0.0);
        wait_for("passes", Duration::from_secs(60), || async {
            (operator.metric(&metric).await? >= before + f64::from(count)).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn from_zero_at_the_first_job() {
    let stage = Stage::new("zero").await;
    deployment(&stage.namespace, "w", 0).await;
    let _operator = stage.operator().await;
    let scaling = json!({"jobsPerReplica": 10, "scaleDownStabilizationSeconds": 0});
    stage.namespace.job_queue("q", scaled(&stage, scaling)).await.unwrap();
    stage.until_it_scales("q").await;
    assert_eq!(stage.replicas().await, 0);
    let mut waits = Vec::new();
    for _ in 0..4 {
        let pushed = Instant::now();
        stage.push("mail", 1).await;
        stage.until_replicas(1, Duration::from_secs(20)).await;
        waits.push(pushed.elapsed());
        line::<()>(&mut stage.pools.redis.clone(), "DEL work:jobs:mail").await;
        stage.until_replicas(0, Duration::from_secs(20)).await;
    }
    // Looks at an idle queue are 5 s apart: without the watch over the list, most would have waited longer.
    waits.sort_unstable();
    assert!(waits[2] < Duration::from_secs(1), "{waits:?}");
    stage.push("mail", 1).await;
    stage
        .namespace
        .status("q", "what was done, and when", |s| {
            s.scaling.as_ref().is_some_and(|s| s.desired_replicas == 1 && s.last_scale_time.is_some())
        })
        .await;
    stage.push("mail", 24).await;
    stage.until_replicas(3, Duration::from_secs(10)).await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn from_zero_when_a_retry_or_a_scheduled_job_becomes_due() {
    for set in ["retry", "scheduled"] {
        let stage = Stage::new("due").await;
        deployment(&stage.namespace, "w", 0).await;
        let _operator = stage.operator().await;
        stage.namespace.job_queue("q", scaled(&stage, json!({}))).await.unwrap();
        stage.until_it_scales("q").await;
        let mut redis = stage.pools.redis.clone();
        run::<(), _>(&mut redis, ["SADD", "work:known_jobs", "mail"]).await;
        let (key, due) = (format!("work:{set}"), now() + 4);
        run::<(), _>(&mut redis, ["ZADD", &key, &due.to_string(), &job("mail", "later")]).await;
        wait_for("replicas", Duration::from_secs(10), || async {
            let replicas = stage.replicas().await;
            assert!(replicas == 0 || now() >= due, "woken before it was due");
            (replicas == 1).then_some(())
        })
        .await;
        assert!(now() <= due + 2, "{set}: {} s late", now() - due);
        stage.namespace.delete().await;
    }
}

#[tokio::test]
async fn no_more_than_the_cap_lets_run() {
    let stage = Stage::new("capped").await;
    deployment(&stage.namespace, "w", 0).await;
    let _operator = stage.operator().await;
    let mut spec = scaled(&stage, json!({"jobsPerReplica": 1}));
    spec["jobs"] = json!([{"name": "mail", "maxConcurrency": 10}]);
    spec["workers"]["concurrency"] = json!(4);
    stage.push("mail", 500).await;
    stage.namespace.job_queue("q", spec).await.unwrap();
    // 10 at once, 4 in each.
    stage.until_replicas(3, Duration::from_secs(20)).await;
    let status = stage.namespace.status("q", "counts", |s| s.waiting == 500 && s.runnable == 10).await;
    assert_eq!(status.scaling.unwrap().desired_replicas, 3);
    stage.namespace.delete().await;
}

#[tokio::test]
async fn c11_a_paused_type_with_a_backlog_is_no_work_until_it_is_released() {
    let stage = Stage::new("paused").await;
    let worker = stage.worker(&["dead"]).await;
    stage.push("mail", 500).await;
    stage.pools.set("jobs:mail:paused", "1").await;
    let operator = stage.operator().await;
    let scaling =
        json!({"minReplicas": 0, "maxReplicas": 20, "jobsPerReplica": 10, "scaleDownStabilizationSeconds": 0});
    stage.namespace.job_queue("q", scaled(&stage, scaling)).await.unwrap();
    wait_for("the binding", Duration::from_secs(20), || async { stage.pools.is_bound("A").await.then_some(()) }).await;
    drop(worker.beats);
    let ended = crate::support::pods::terminated("c1", worker.start - 60, now(), "OOMKilled", 137);
    crate::support::pods::report(
        &stage.namespace,
        &worker.pod,
        "Running",
        json!({"containerID": "containerd://c1", "state": ended}),
    )
    .await;
    // Its lock is free and its job waits, paused or not; and no pod is there for it.
    stage.namespace.status("q", "501 paused jobs", |s| s.waiting == 501 && s.jobs.iter().any(|j| j.paused)).await;
    assert_eq!(stage.pools.lock("mail").await, 0);
    stage.until_replicas(0, Duration::from_secs(20)).await;
    stage.passes(&operator, "q", 3).await;
    assert_eq!(stage.replicas().await, 0);
    line::<()>(&mut stage.pools.redis.clone(), "DEL work:jobs:mail:paused").await;
    stage.until_replicas(20, Duration::from_secs(10)).await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn c23_redis_away_is_not_nothing_to_do() {
    let mut stage = Stage::new("away").await;
    deployment(&stage.namespace, "w", 4).await;
    let operator = stage.operator().await;
    let scaling = json!({"minReplicas": 0, "scaleDownStabilizationSeconds": 0, "protectBusyPods": false});
    stage.push("mail", 4).await;
    stage.namespace.job_queue("q", scaled(&stage, scaling)).await.unwrap();
    stage.until_it_scales("q").await;
    stage.server.kill();
    stage.namespace.status("q", "why", |s| condition(s, "ScalingActive") == ("False", "ConnectionRefused")).await;
    // Many attempts later it is still so.
    let failures = format!(
        "poolkeeper_failures_total{{namespace=\"{}\",jobqueue=\"q\",reason=\"ConnectionRefused\"}} ",
        stage.namespace.name
    );
    wait_for("attempts", Duration::from_secs(60), || async {
        (operator.metric(&failures).await? >= 5.0).then_some(())
    })
    .await;
    assert_eq!(stage.replicas().await, 4);
    stage.server.restart().await;
    // It comes back empty: that is known now, and not before.
    stage.until_replicas(0, Duration::from_secs(20)).await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn a_key_of_a_wrong_type_spoils_its_own_job_type_only() {
    let stage = Stage::new("spoiled").await;
    deployment(&stage.namespace, "w", 1).await;
    let operator = stage.operator().await;
    stage.pools.set("jobs:bad", "no list").await;
    let mut spec = scaled(&stage, json!({"jobsPerReplica": 10, "scaleDownStabilizationSeconds": 0}));
    spec["jobs"] = json!([{"name": "mail"}, {"name": "bad"}]);
    stage.push("mail", 30).await;
    stage.namespace.job_queue("q", spec).await.unwrap();
    stage.until_replicas(3, Duration::from_secs(20)).await;
    line::<()>(&mut stage.pools.redis.clone(), "DEL work:jobs:mail").await;
    // What can't be read is not nothing: one stays.
    stage.until_replicas(1, Duration::from_secs(20)).await;
    stage.passes(&operator, "q", 3).await;
    assert_eq!(stage.replicas().await, 1);
    let says = "key \"work:jobs:bad\" in Redis should be a list: delete it, or rename what uses it";
    stage
        .namespace
        .status("q", "why, in conditions and for the job type", |s| {
            let told = |type_: &str| s.conditions.iter().any(|c| c.type_ == type_ && c.message.starts_with(says));
            condition(s, "ScalingActive") == ("False", "WrongKeyType")
                && told("ScalingActive")
                && told("LocksConsistent")
                && s.jobs.iter().any(|job| job.name == "bad" && job.problem.as_deref() == Some(says))
        })
        .await;
    line::<()>(&mut stage.pools.redis.clone(), "DEL work:jobs:bad").await;
    stage.until_replicas(0, Duration::from_secs(20)).await;
    stage.until_it_scales("q").await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn a_retry_set_of_a_wrong_type_is_told_and_the_rest_is_scaled_for() {
    let stage = Stage::new("wrong-set").await;
    deployment(&stage.namespace, "w", 0).await;
    let _operator = stage.operator().await;
    stage.pools.set("retry", "no sorted set").await;
    stage.namespace.job_queue("q", scaled(&stage, json!({"jobsPerReplica": 10}))).await.unwrap();
    let status =
        stage.namespace.status("q", "why", |s| condition(s, "ScalingActive") == ("False", "WrongKeyType")).await;
    assert!(
        status.conditions.iter().any(|c| c.type_ == "ScalingActive"
            && c.message.contains("key \"work:retry\" in Redis should be a sorted set: delete it")),
        "{status:?}"
    );
    stage.push("mail", 15).await;
    stage.until_replicas(2, Duration::from_secs(20)).await;
    line::<()>(&mut stage.pools.redis.clone(), "DEL work:retry").await;
    stage.until_it_scales("q").await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn c27_pods_that_stay_pending_are_not_asked_for_twice() {
    let stage = Stage::new("pending").await;
    deployment(&stage.namespace, "w", 0).await;
    let operator = stage.operator().await;
    stage.push("mail", 100).await;
    stage
        .namespace
        .job_queue("q", scaled(&stage, json!({"jobsPerReplica": 10, "maxReplicas": 50, "maxWaitSeconds": 1})))
        .await
        .unwrap();
    stage.until_replicas(10, Duration::from_secs(20)).await;
    pods_of(&stage.namespace, "app=w", 10).await;
    for _ in 0..3 {
        stage.passes(&operator, "q", 2).await;
        assert_eq!(stage.replicas().await, 10, "nobody runs them, so more would help nobody");
    }
    stage.namespace.delete().await;
}

#[tokio::test]
async fn a_template_starts_with_the_least_and_keeps_what_runs_when_its_number_goes() {
    let stage = Stage::new("template-scaled").await;
    let _operator = stage.operator().await;
    let template = json!({"spec": {"containers": [{"name": "w", "image": "none"}]}});
    let spec = |workers: Value, scaling: Value| {
        let mut spec = stage.spec(json!({"jobs": [{"name": "mail"}], "workers": workers}));
        if !scaling.is_null() {
            spec["scaling"] = scaling;
        }
        spec
    };
    let scaling = json!({"minReplicas": 0, "maxReplicas": 5, "scaleDownStabilizationSeconds": 0});
    stage.namespace.job_queue("w", spec(json!({"template": template}), scaling.clone())).await.unwrap();
    stage.until_it_scales("w").await;
    assert_eq!(stage.replicas().await, 0, "never 1 for a moment that makes a pod");
    let generation = stage.namespace.api::<Deployment>().get("w").await.unwrap().metadata.generation;
    assert_eq!(generation, Some(1), "nobody had to lower it");
    stage.push("mail", 3).await;
    stage.until_replicas(3, Duration::from_secs(20)).await;

    // From a fixed number to scaling: nothing falls back to one.
    stage.namespace.job_queue("w", spec(json!({"template": template, "replicas": 4}), Value::Null)).await.unwrap();
    stage.until_replicas(4, Duration::from_secs(20)).await;
    let scaling = json!({"minReplicas": 0, "maxReplicas": 5});
    stage.namespace.job_queue("w", spec(json!({"template": template}), scaling)).await.unwrap();
    stage.until_it_scales("w").await;
    wait_for("the number to be nobody's by application", Duration::from_secs(20), || async {
        let found = stage.namespace.api::<Deployment>().get("w").await.ok()?;
        assert_eq!(found.spec.replicas, Some(4), "four run, and none ends");
        let ours = found.metadata.managed_fields?.into_iter().find(|entry| {
            entry.manager.as_deref() == Some("poolkeeper") && entry.operation.as_deref() == Some("Apply")
        })?;
        ours.fields_v1?.0["f:spec"]["f:replicas"].is_null().then_some(())
    })
    .await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn scale_on_a_queue_that_scales_itself_is_refused_with_advice() {
    let stage = Stage::new("refused").await;
    let template = json!({"spec": {"containers": [{"name": "w", "image": "none"}]}});
    let spec = stage.spec(json!({"workers": {"template": template}, "scaling": {"maxReplicas": 5}}));
    stage.namespace.job_queue("q", spec).await.unwrap();
    let scale = json!({"spec": {"replicas": 3}});
    let refused =
        stage.namespace.api::<JobQueue>().patch_scale("q", &PatchParams::default(), &Patch::Merge(&scale)).await;
    let message = refused.expect_err("it decides itself").to_string();
    assert!(message.contains("spec.scaling.minReplicas"), "{message}");
    for (workers, scaling, says) in [
        (json!({}), json!({"maxReplicas": 5}), "spec.workers.scaleTargetRef"),
        (json!({"template": template}), json!({"minReplicas": 6, "maxReplicas": 5}), "minReplicas must not be above"),
        (json!({"template": template}), json!({}), "maxReplicas"),
    ] {
        let refused =
            stage.namespace.job_queue("bad", stage.spec(json!({"workers": workers, "scaling": scaling}))).await;
        let message = refused.expect_err("refused").to_string();
        assert!(message.contains(says), "{message}");
    }
    stage.namespace.delete().await;
}

#[tokio::test]
async fn the_wait_bound_grows_what_the_ratio_would_leave() {
    let stage = Stage::new("wait").await;
    deployment(&stage.namespace, "w", 1).await;
    let pod = pods_of(&stage.namespace, "app=w", 1).await.remove(0);
    let start = now();
    runs(&stage.namespace, &pod, "c1", start - 60).await;
    let _beats = stage.pools.beating("A", start - 59, &pod, "mail").await;
    // Long ago, by the job's own time.
    stage.push("mail", 4).await;
    let _operator = stage.operator().await;
    stage.namespace.job_queue("q", scaled(&stage, json!({"jobsPerReplica": 100, "maxWaitSeconds": 5}))).await.unwrap();
    stage.until_replicas(2, Duration::from_secs(20)).await;
    stage.namespace.delete().await;
}
