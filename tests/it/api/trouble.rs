//! A Redis that can't be used: a condition says why, nothing is lost or taken for dead, no other queue is slowed.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use poolkeeper::api::job_queue::JobQueue;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::Stage;
use crate::support::kube::{TestNamespace, condition, wait_for};
use crate::support::operator::Operator;
use crate::support::pods::now;
use crate::support::redis::{RedisServer, free_port, line};
use crate::support::secured::Secured;

async fn secret(namespace: &TestNamespace, name: &str, data: Value) {
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
    namespace.api::<Secret>().patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await.unwrap();
}

#[tokio::test]
async fn c25_an_acl_user_with_an_awkward_password_in_a_secret() {
    const PASSWORD: &str = "p@ss:w/rd#1%";
    let stage = Stage::new("acl").await;
    let mut admin = stage.server.connection().await;
    line::<()>(&mut admin, "SELECT 2").await;
    line::<()>(&mut admin, "SADD work:known_jobs mail").await;
    for n in 0..25 {
        line::<()>(
            &mut admin,
            &format!("LPUSH work:jobs:mail {{\"name\":\"mail\",\"id\":\"m{n}\",\"t\":1,\"args\":null}}"),
        )
        .await;
    }
    line::<()>(&mut admin, &format!("ACL SETUSER redis on >{PASSWORD} ~* +@all")).await;
    line::<()>(&mut admin, "ACL SETUSER default off").await;
    let operator = stage.operator().await;
    let from = |key: &str| json!({"secretKeyRef": {"name": "redis", "key": key}});
    let redis = json!({"redis": {"url": stage.server.url().replace("/0", "/2"), "usernameFrom": from("username"), "passwordFrom": from("password")}});
    stage.namespace.job_queue("mail", stage.spec(redis)).await.unwrap();
    stage
        .namespace
        .status("mail", "a missing Secret", |s| condition(s, "RedisReachable") == ("False", "SecretNotFound"))
        .await;
    secret(&stage.namespace, "redis", json!({"username": "nobody", "password": PASSWORD})).await;
    let status = stage
        .namespace
        .status("mail", "a refusal", |s| condition(s, "RedisReachable") == ("False", "WrongPassword"))
        .await;
    let message = &status.conditions.iter().find(|c| c.type_ == "RedisReachable").unwrap().message;
    assert!(message.contains("WRONGPASS"), "the server's own words: {message}");
    secret(&stage.namespace, "redis", json!({"username": "redis", "password": PASSWORD})).await;
    let status =
        stage.namespace.status("mail", "25 jobs", |s| s.waiting == 25 && condition(s, "Ready").0 == "True").await;
    let events = stage
        .namespace
        .api::<k8s_openapi::api::events::v1::Event>()
        .list(&kube::api::ListParams::default())
        .await
        .unwrap();
    for (where_, text) in
        [("log", operator.log()), ("status", format!("{status:?}")), ("events", format!("{:?}", events.items))]
    {
        assert!(!text.contains(PASSWORD) && !text.contains("p%40ss"), "the password is in the {where_}");
    }
    stage.namespace.delete().await;
}

#[tokio::test]
async fn the_url_comes_out_of_a_secret_and_a_bad_one_is_told_without_being_shown() {
    let stage = Stage::new("url").await;
    let _operator = stage.operator().await;
    let from = json!({"redis": {"urlFrom": {"secretKeyRef": {"name": "redis", "key": "url"}}}});
    let mut spec = stage.spec(json!({}));
    spec["redis"] = from["redis"].clone();
    secret(&stage.namespace, "redis", json!({"url": "redis://:hunter2@:99999/0\n"})).await;
    stage.namespace.job_queue("q", spec).await.unwrap();
    let status =
        stage.namespace.status("q", "a bad URL", |s| condition(s, "RedisReachable") == ("False", "InvalidRedis")).await;
    assert_eq!(condition(&status, "Stalled").0, "True");
    assert!(!format!("{status:?}").contains("hunter2"));
    secret(&stage.namespace, "redis", json!({"url": format!("{}\n", stage.server.url())})).await;
    stage.namespace.status("q", "connected", |s| condition(s, "Ready").0 == "True").await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn tls_with_an_own_authority_a_client_certificate_and_a_server_name() {
    let stage = Stage::new("tls").await;
    let secured = Secured::start().await;
    let _operator = stage.operator().await;
    let authority = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ca"}, "data": {"ca.crt": secured.read("ca.pem")}});
    stage.namespace.create::<ConfigMap>(authority).await;
    secret(
        &stage.namespace,
        "client",
        json!({"tls.crt": secured.read("client.pem"), "tls.key": secured.read("client.key")}),
    )
    .await;
    let from = |key: &str| json!({"secretKeyRef": {"name": "client", "key": key}});
    let tls = |server_name: &str| {
        json!({"redis": {"url": secured.server.url().replace("redis://", "rediss://"), "tls": {
            "caFrom": {"configMapKeyRef": {"name": "ca", "key": "ca.crt"}}, "certFrom": from("tls.crt"), "keyFrom": from("tls.key"), "serverName": server_name,
        }}})
    };
    stage.namespace.job_queue("q", stage.spec(tls("other.example"))).await.unwrap();
    stage.namespace.status("q", "a refusal", |s| condition(s, "RedisReachable") == ("False", "TlsFailed")).await;
    stage.namespace.job_queue("q", stage.spec(tls("redis.example"))).await.unwrap();
    stage.namespace.status("q", "connected", |s| condition(s, "Ready").0 == "True").await;
    stage.namespace.delete().await;
}

#[tokio::test]
async fn a_redis_that_stops_for_a_while_costs_nobody_a_job() {
    let mut stage = Stage::new("stops").await;
    let _operator = stage.operator().await;
    let beats = stage.pools.beating("A", now() - 60, "laptop", "mail").await;
    stage
        .namespace
        .job_queue(
            "q",
            stage.spec(
                json!({"reaping": {"outsiderTimeoutSeconds": 6}, "jobs": [{"name": "mail", "maxConcurrency": 2}]}),
            ),
        )
        .await
        .unwrap();
    stage.namespace.status("q", "a living pool", |s| s.pools.living == 1).await;
    stage.server.freeze();
    stage.namespace.status("q", "no answer", |s| condition(s, "RedisReachable") == ("False", "NoAnswer")).await;
    // Longer than the timeout by which silence is judged: the silence is Redis's, not the worker's.
    let until = Instant::now() + Duration::from_secs(8);
    wait_for("the timeout to pass", Duration::from_secs(12), || async { (Instant::now() > until).then_some(()) }).await;
    stage.server.thaw();
    stage
        .namespace
        .status("q", "back", |s| condition(s, "RedisReachable").0 == "True" && condition(s, "Ready").0 == "True")
        .await;
    assert!(stage.pools.knows("A").await);
    drop(beats);
    stage.server.kill();
    stage.namespace.status("q", "refused", |s| condition(s, "RedisReachable") == ("False", "ConnectionRefused")).await;
    stage.server.restart().await;
    stage.namespace.status("q", "back again", |s| condition(s, "Ready").0 == "True").await;
    let mut redis = stage.server.connection().await;
    wait_for("the cap in the empty Redis", Duration::from_secs(20), || async {
        let cap: Option<String> = line(&mut redis.clone(), "GET work:jobs:mail:max_concurrency").await;
        (cap.as_deref() == Some("2")).then_some(())
    })
    .await;
    let _: String = line(&mut redis, "PING").await;
    stage.namespace.delete().await;
}

/// How long until an overwritten cap of each good queue is back, the slowest.
async fn slowest_put_back(server: &RedisServer, queues: usize) -> Duration {
    let mut redis = server.connection().await;
    let mut slowest = Duration::ZERO;
    for n in 0..queues {
        let began = Instant::now();
        line::<()>(&mut redis, &format!("SET good{n}:jobs:mail:max_concurrency 99")).await;
        wait_for("the cap to be back", Duration::from_secs(10), || async {
            let cap: Option<String> = line(&mut redis.clone(), &format!("GET good{n}:jobs:mail:max_concurrency")).await;
            (cap.as_deref() == Some("3")).then_some(())
        })
        .await;
        slowest = slowest.max(began.elapsed());
    }
    slowest
}

#[tokio::test]
async fn ten_queues_with_bad_servers_slow_no_good_one() {
    let stage = Stage::new("twenty").await;
    let _operator = stage.operator().await;
    let queue = |namespace: &str, url: String| json!({"gocraftWork": {"namespace": namespace}, "redis": {"url": url}, "jobs": [{"name": "mail", "maxConcurrency": 3}]});
    for n in 0..10 {
        stage.namespace.job_queue(&format!("good{n}"), queue(&format!("good{n}"), stage.server.url())).await.unwrap();
    }
    for n in 0..10 {
        stage.namespace.status(&format!("good{n}"), "ready", |s| condition(s, "Ready").0 == "True").await;
    }
    let alone = slowest_put_back(&stage.server, 10).await;

    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let secured = Secured::start().await;
    let guarded = RedisServer::start_with(&["--requirepass", "secret"]).await;
    let web = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let web_port = web.local_addr().unwrap().port();
    let _not_redis = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(async move {
        while let Ok((mut stream, _)) = web.accept().await {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    }));
    let bad = [
        ("ConnectionRefused", format!("redis://127.0.0.1:{}/0", free_port())),
        ("NoAnswer", format!("redis://127.0.0.1:{}/0", silent.local_addr().unwrap().port())),
        ("NotRedis", secured.server.url()),
        ("WrongPassword", format!("redis://:wrong@127.0.0.1:{}/0", guarded.port)),
        ("NotRedis", format!("redis://127.0.0.1:{web_port}/0")),
    ];
    for n in 0..10 {
        stage.namespace.job_queue(&format!("bad{n}"), queue("work", bad[n % 5].1.clone())).await.unwrap();
    }
    for n in 0..10 {
        let reason = bad[n % 5].0;
        stage
            .namespace
            .status(&format!("bad{n}"), reason, |s| condition(s, "RedisReachable") == ("False", reason))
            .await;
    }
    let beside = slowest_put_back(&stage.server, 10).await;
    println!("slowest of ten caps back: {alone:?} alone, {beside:?} beside ten bad servers");
    assert!(beside < alone + Duration::from_secs(2), "{beside:?} beside bad servers, {alone:?} without");
    stage.namespace.delete().await;
}

#[tokio::test]
async fn c49_a_queue_whose_redis_is_gone_for_good_goes_in_bounded_time() {
    let stage = Stage::new("gone").await;
    let operator = stage.operator().await;
    let spec = json!({
        "gocraftWork": {"namespace": "work"},
        "redis": {"url": format!("redis://127.0.0.1:{}/0", free_port())},
        "jobs": [{"name": "mail", "maxConcurrency": 3}],
        "deletionPolicy": "Release",
    });
    stage.namespace.job_queue("q", spec).await.unwrap();
    stage.namespace.status("q", "refused", |s| condition(s, "RedisReachable") == ("False", "ConnectionRefused")).await;
    let queues = stage.namespace.api::<JobQueue>();
    wait_for("the finalizer", Duration::from_secs(10), || async {
        queues.get("q").await.ok()?.metadata.finalizers.filter(|f| !f.is_empty()).map(|_| ())
    })
    .await;
    queues.delete("q", &DeleteParams::default()).await.unwrap();
    wait_for("the queue to go", Duration::from_secs(75), || async {
        queues.get_opt("q").await.ok()?.is_none().then_some(())
    })
    .await;
    let abandoned = operator
        .metric(&format!(
            "poolkeeper_cleanups_abandoned_total{{namespace=\"{}\",jobqueue=\"q\"}}",
            stage.namespace.name
        ))
        .await;
    assert_eq!(abandoned, Some(1.0), "what was not cleaned up is counted");
    stage.namespace.delete().await;
}

#[tokio::test]
async fn at_rest_an_operator_is_idle() {
    let stage = Stage::new("idle").await;
    let operator = stage.operator().await;
    stage.namespace.job_queue("q", stage.spec(json!({"jobs": [{"name": "mail", "maxConcurrency": 3}]}))).await.unwrap();
    stage.namespace.status("q", "ready", |s| condition(s, "Ready").0 == "True").await;
    // Asked of Redis, so that the operator has nothing to do but its passes.
    let redis = stage.pools.redis.clone();
    let scripts = async || -> u64 {
        let info: String = line(&mut redis.clone(), "INFO commandstats").await;
        let calls = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next());
        calls.map_or(0, |calls| calls.parse().expect("a number"))
    };
    let (first, ticks, began) = (scripts().await, cpu_ticks(&operator), Instant::now());
    let last = wait_for("some passes", Duration::from_secs(60), || async {
        let now = scripts().await;
        (now >= first + 6).then_some(now)
    })
    .await;
    assert!(last < first + 8, "passes come one by one");
    assert!(began.elapsed() > Duration::from_secs(10), "passes come all the time: six in {:?}", began.elapsed());
    let (used, seconds) = (cpu_ticks(&operator) - ticks, began.elapsed().as_secs());
    assert!(used <= seconds + 2, "{used} ticks of 10 ms in {seconds} s: something runs hot");
    stage.namespace.delete().await;
}

/// User and system time of the process, in clock ticks.
fn cpu_ticks(operator: &Operator) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", operator.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}
