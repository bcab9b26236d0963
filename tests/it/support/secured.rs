//! A Redis that speaks TLS only, with an authority of its own, and wants a client certificate.

use std::path::Path;
use std::process::Command;

use poolkeeper::redis::{Secret, Tls};

use super::redis::RedisServer;

fn openssl(dir: &Path, args: &str) {
    let output = Command::new("openssl").args(args.split_whitespace()).current_dir(dir).output();
    let output = output.expect("openssl must be installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The server, its authority and its certificates.
pub struct Secured {
    /// The server; its certificate is for `redis.example`.
    pub server: RedisServer,
    dir: tempfile::TempDir,
}

impl Secured {
    /// A server that speaks TLS only and wants a client certificate. Its own certificate is for `redis.example`.
    pub async fn start() -> Self {
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

    /// A file of its folder: `ca.pem`, `client.pem`, `client.key`, and `other.pem` of an authority that nobody knows.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap()
    }

    /// The settings that get in.
    pub fn tls(&self) -> Tls {
        Tls {
            ca_pem: Some(self.read("ca.pem")),
            client_cert_pem: Some(self.read("client.pem")),
            client_key_pem: Some(Secret::new(self.read("client.key"))),
            server_name: Some("redis.example".to_owned()),
            insecure_skip_verify: false,
        }
    }
}
