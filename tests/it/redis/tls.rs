//! TLS with an authority of one's own and client certificates, and each way it goes wrong.

use std::path::Path;
use std::process::Command;

use poolkeeper::redis::{Call, Client, Endpoint, Failure, Reason, Secret, Tls};
use redis::cmd;

use crate::support::redis::RedisServer;

fn openssl(dir: &Path, args: &str) {
    let output = Command::new("openssl").args(args.split_whitespace()).current_dir(dir).output();
    let output = output.expect("openssl must be installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

struct Secured {
    server: RedisServer,
    dir: tempfile::TempDir,
}

impl Secured {
    /// A server that speaks TLS only and wants a client certificate. Its own certificate is for `redis.example`.
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
        openssl(path, &format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=ca"));
        openssl(path, &format!("req -x509 {key} -keyout other.key -out other.pem -subj /CN=other"));
        std::fs::write(path.join("san"), "subjectAltName=DNS:redis.example").unwrap();
        for name in ["server", "client"] {
            openssl(
                path,
                &format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}").replace("-days 2", ""),
            );
            openssl(
                path,
                &format!(
                    "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile san -out {name}.pem"
                ),
            );
        }
        let file = |name: &str| path.join(name).to_str().unwrap().to_owned();
        let args = [
            "--port",
            "0",
            "--tls-port",
            "PORT",
            "--tls-cert-file",
            &file("server.pem"),
            "--tls-key-file",
            &file("server.key"),
            "--tls-ca-cert-file",
            &file("ca.pem"),
            "--tls-auth-clients",
            "yes",
        ];
        Self { server: RedisServer::start_with(&args).await, dir }
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap()
    }

    fn tls(&self) -> Tls {
        Tls {
            ca_pem: Some(self.read("ca.pem")),
            client_cert_pem: Some(self.read("client.pem")),
            client_key_pem: Some(Secret::new(self.read("client.key"))),
            server_name: Some("redis.example".to_owned()),
            insecure_skip_verify: false,
        }
    }

    async fn ping(&self, tls: Tls) -> Result<(), Failure> {
        let endpoint = self.server.endpoint().with_tls(tls);
        Client::new(endpoint).run(Call::command(cmd("PING"))).await.map(|_| ())
    }
}

#[tokio::test]
async fn connects_with_an_own_authority_a_client_certificate_and_another_server_name() {
    let secured = Secured::start().await;
    secured.ping(secured.tls()).await.unwrap();
    let trusting = Tls { ca_pem: None, server_name: None, insecure_skip_verify: true, ..secured.tls() };
    secured.ping(trusting).await.unwrap();
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
        let failure = secured.ping(wrong).await.unwrap_err();
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
