//! TLS with an authority of one's own and client certificates, and each way it goes wrong.

use poolkeeper::redis::{Call, Client, Endpoint, Failure, Reason, Secret, Tls};
use redis::cmd;

use crate::support::redis::RedisServer;
use crate::support::secured::Secured;

async fn ping(secured: &Secured, tls: Tls) -> Result<(), Failure> {
    let endpoint = secured.server.endpoint().with_tls(tls);
    Client::new(endpoint).run(Call::command(cmd("PING"))).await.map(|_| ())
}

#[tokio::test]
async fn connects_with_an_own_authority_a_client_certificate_and_another_server_name() {
    let secured = Secured::start().await;
    ping(&secured, secured.tls()).await.unwrap();
    let trusting = Tls { ca_pem: None, server_name: None, insecure_skip_verify: true, ..secured.tls() };
    ping(&secured, trusting).await.unwrap();
}

#[tokio::test]
async fn each_wrong_setting_is_a_tls_failure_that_says_which() {
    let secured = Secured::start().await;
    let right = secured.tls();
    let garbage_key = Some(Secret::new("-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n"));
    for (wrong, says) in [
        (Tls { server_name: None, ..right.clone() }, "certificate"),
        (Tls { ca_pem: None, ..right.clone() }, "certificate"),
        (Tls { ca_pem: Some(secured.read("other.pem")), ..right.clone() }, "certificate"),
        (Tls { ca_pem: Some("nothing".into()), ..right.clone() }, "caFrom"),
        (Tls { client_cert_pem: None, ..right.clone() }, "only of use together"),
        (Tls { client_cert_pem: None, client_key_pem: None, ..right.clone() }, "TLS handshake"),
        (Tls { client_key_pem: garbage_key, ..right.clone() }, "keyFrom"),
    ] {
        let failure = ping(&secured, wrong).await.unwrap_err();
        assert_eq!(failure.reason, Reason::TlsFailed, "{failure}");
        assert!(failure.message.contains(says), "{failure}");
        assert!(!failure.message.contains("hunter2"), "{failure}");
    }
}

#[tokio::test]
async fn plain_text_and_tls_that_miss_each_other_are_told_apart() {
    let secured = Secured::start().await;
    let failure = Client::new(secured.server.endpoint()).run(Call::command(cmd("PING"))).await.unwrap_err();
    assert_eq!(failure.reason, Reason::NotRedis, "{failure}");
    assert!(failure.message.contains("rediss://"), "{failure}");

    let plain = RedisServer::start().await;
    let endpoint = Endpoint::parse(&format!("rediss://127.0.0.1:{}", plain.port)).unwrap();
    let failure = Client::new(endpoint).run(Call::command(cmd("PING"))).await.unwrap_err();
    assert!(matches!(failure.reason, Reason::NoAnswer | Reason::TlsFailed), "{failure:?}");
    assert!(failure.message.contains("TLS"), "{failure}");
}
