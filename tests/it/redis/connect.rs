//! What each way of failing to reach Redis is called, and that all of them pass by themselves.

use std::time::{Duration, Instant};

use poolkeeper::redis::{Call, Client, Connections, Endpoint, Failure, Reason, Secret};
use redis::cmd;
use tokio::net::TcpListener;

use crate::support::proxy::Proxy;
use crate::support::redis::{RedisServer, eventually, free_port, line, run};

async fn ping(client: &Client) -> Result<(), Failure> {
    client.run(Call::command(cmd("PING"))).await.map(|_| ())
}

async fn reason_at(url: &str) -> (Reason, String) {
    let failure = ping(&Client::new(Endpoint::parse(url).unwrap())).await.unwrap_err();
    (failure.reason, failure.message)
}

#[tokio::test]
async fn nothing_listens_or_the_name_is_unknown() {
    let (reason, message) = reason_at(&format!("redis://127.0.0.1:{}", free_port())).await;
    assert_eq!(reason, Reason::ConnectionRefused, "{message}");
    let (reason, message) = reason_at("redis://no-such-host.invalid:6379").await;
    assert_eq!(reason, Reason::NameNotResolved, "{message}");
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_two_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let began = Instant::now();
    let (reason, message) = reason_at(&format!("redis://{}", listener.local_addr().unwrap())).await;
    assert_eq!(reason, Reason::NoAnswer, "{message}");
    assert!(began.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn a_wrong_password_is_told_in_the_server_s_words_and_not_shown() {
    let server = RedisServer::start().await;
    let mut redis = server.connection().await;
    run::<(), _>(&mut redis, ["ACL", "SETUSER", "app", "on", ">p@ss:w/rd#1%", "~*", "+@all"]).await;
    let right = server.endpoint().with_username("app").with_password(Secret::new("p@ss:w/rd#1%"));
    ping(&Client::new(right.clone())).await.unwrap();
    for wrong in [right.clone().with_password(Secret::new("hunter2")), right.clone().with_username("nobody")] {
        let failure = ping(&Client::new(wrong)).await.unwrap_err();
        assert_eq!(failure.reason, Reason::WrongPassword);
        assert!(failure.message.contains("WRONGPASS"), "{failure}");
        assert!(!failure.message.contains("hunter2") && !failure.message.contains("p@ss"), "{failure}");
    }
    line::<()>(&mut redis, "CONFIG SET requirepass secret").await;
    assert_eq!(ping(&server.client()).await.unwrap_err().reason, Reason::WrongPassword);
}

#[tokio::test]
async fn something_else_than_redis_is_recognized() {
    use tokio::io::AsyncWriteExt;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let (reason, message) = reason_at(&format!("redis://{address}")).await;
    assert_eq!(reason, Reason::NotRedis, "{message}");
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named() {
    let server = RedisServer::start().await;
    let mut endpoint = server.endpoint();
    endpoint.database = 99;
    let failure = ping(&Client::new(endpoint)).await.unwrap_err();
    assert!(failure.message.contains("DB index is out of range"), "{failure}");
}

#[tokio::test]
async fn a_script_of_somebody_else_makes_it_busy_for_a_while() {
    let server = RedisServer::start().await;
    let mut other = server.connection().await;
    let mut redis = server.connection().await;
    let client = server.client();
    ping(&client).await.unwrap();
    line::<()>(&mut redis, "CONFIG SET busy-reply-threshold 50").await;
    let endless = tokio::spawn(async move {
        let _: Result<(), _> = cmd("EVAL").arg("while true do end").arg(0).query_async(&mut other).await;
    });
    eventually("Redis is busy", async || matches!(ping(&client).await, Err(failure) if failure.reason == Reason::Busy))
        .await;
    line::<()>(&mut redis, "SCRIPT KILL").await;
    endless.await.unwrap();
    eventually("Redis answers", async || ping(&client).await.is_ok()).await;
}

/// No hot loop: while Redis is away, many calls make few attempts.
#[tokio::test]
async fn calls_while_redis_is_away_fail_at_once_and_it_is_found_again() {
    let mut server = RedisServer::start().await;
    let client = server.client();
    let before = client.run(Call::command(cmd("PING"))).await.unwrap().1;
    server.kill();
    eventually("the loss is noticed", async || ping(&client).await.is_err()).await;
    let began = Instant::now();
    for _ in 0..10_000 {
        assert!(ping(&client).await.is_err());
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    server.restart().await;
    eventually("Redis is found again", async || ping(&client).await.is_ok()).await;
    assert_ne!(client.run(Call::command(cmd("PING"))).await.unwrap().1, before);
}

#[tokio::test]
async fn many_callers_share_one_attempt() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = Client::new(Endpoint::parse(&format!("redis://{address}")).unwrap());
    let accept = tokio::spawn(async move {
        let mut accepted = Vec::new();
        while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_secs(3), listener.accept()).await {
            accepted.push(stream);
        }
        accepted.len()
    });
    let calls = futures::future::join_all((0..50).map(|_| ping(&client))).await;
    assert!(calls.iter().all(|call| call.as_ref().is_err_and(|failure| failure.reason == Reason::NoAnswer)));
    assert_eq!(accept.await.unwrap(), 1);
}

#[tokio::test]
async fn a_frozen_server_is_noticed_and_a_half_open_connection_replaced() {
    let server = RedisServer::start().await;
    let proxy = Proxy::to(([127, 0, 0, 1], server.port).into()).await;
    let client = Client::new(Endpoint::parse(&format!("redis://{}", proxy.address)).unwrap());
    ping(&client).await.unwrap();
    server.freeze();
    assert_eq!(ping(&client).await.unwrap_err().reason, Reason::NoAnswer);
    server.thaw();
    eventually("it answers again", async || ping(&client).await.is_ok()).await;
    proxy.cut();
    eventually("a cut is survived", async || ping(&client).await.is_ok()).await;
}

#[tokio::test]
async fn equal_endpoints_share_a_connection_and_other_credentials_don_t() {
    let server = RedisServer::start().await;
    let mut redis = server.connection().await;
    run::<(), _>(&mut redis, ["ACL", "SETUSER", "app", "on", ">one", "~*", "+@all"]).await;
    let connections = Connections::default();
    let as_app = server.endpoint().with_username("app").with_password(Secret::new("one"));
    let (first, second, other) =
        (connections.get(&server.endpoint()), connections.get(&server.endpoint()), connections.get(&as_app));
    let id = async |client: &Client| client.run(Call::command(cmd("PING"))).await.unwrap().1;
    assert_eq!(id(&first).await, id(&second).await);
    assert_ne!(id(&first).await, id(&other).await);
    let before = id(&first).await;
    drop((first, second));
    assert_ne!(id(&connections.get(&server.endpoint())).await, before);
}

#[tokio::test]
async fn each_call_of_a_pipeline_has_its_own_result() {
    let server = RedisServer::start().await;
    let client = server.client();
    let mut wrong = cmd("LLEN");
    line::<()>(&mut server.connection().await, "SET text x").await;
    wrong.arg("text");
    let calls = vec![Call::command(cmd("PING")), Call::command(wrong), Call::command(cmd("PING"))];
    let (answers, _) = client.run_all(calls).await.unwrap();
    assert!(answers[0].is_ok() && answers[2].is_ok());
    assert_eq!(answers[1].as_ref().unwrap_err().reason, Reason::WrongType);
}

#[tokio::test]
async fn hundreds_of_callers_at_once_wait_for_their_turn_and_nobody_takes_that_for_silence() {
    let server = RedisServer::start().await;
    let client = server.client();
    // Together they take twice as long as an answer may.
    let takes_5_ms = "local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end \
                      local start = now() while now() - start < 5000 do end";
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..800 {
        let (client, mut eval) = (client.clone(), cmd("EVAL"));
        eval.arg(takes_5_ms).arg(0);
        callers.spawn(async move { client.run(Call::command(eval)).await.map(|_| ()) });
    }
    let answers = callers.join_all().await;
    assert_eq!(answers.iter().find_map(|answer| answer.as_ref().err()), None);
}
