//! Opens a connection: TCP, TLS and Redis's handshake, each failure with its own reason, within one bound.
//!
//! TLS is set up here and not by the redis crate, which has no way to expect another server name than the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, RedisConnectionInfo};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::endpoint::{Endpoint, Tls};
use super::failure::{Failure, Reason};
use crate::protocol::ConnectionId;

/// How long a connection may take until it can be used.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an answer may take.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// An open connection. It ends when this is dropped.
#[derive(Debug)]
pub struct Link {
    /// Sends commands; clones share the connection.
    pub connection: MultiplexedConnection,
    /// Which connection this is.
    pub id: ConnectionId,
    driver: JoinHandle<()>,
}

impl Link {
    /// Whether the other side has gone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.driver.is_finished()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Opens a connection to one endpoint, as often as asked.
#[derive(Debug)]
pub struct Dialer {
    endpoint: Endpoint,
    place: String,
}

impl Dialer {
    /// Dials `endpoint`.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        Self { place: endpoint.to_string(), endpoint }
    }

    /// The endpoint that is dialed.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Opens a connection that speaks RESP3; `pushes` gets what the server says unasked.
    pub async fn dial(&self, pushes: Option<mpsc::UnboundedSender<PushInfo>>) -> Result<Link, Failure> {
        self.dial_with(ProtocolVersion::RESP3, pushes).await
    }

    /// Opens a connection that speaks RESP2, for servers and proxies that know nothing newer.
    pub async fn dial_resp2(&self) -> Result<Link, Failure> {
        self.dial_with(ProtocolVersion::RESP2, None).await
    }

    async fn dial_with(
        &self,
        protocol: ProtocolVersion,
        pushes: Option<mpsc::UnboundedSender<PushInfo>>,
    ) -> Result<Link, Failure> {
        let mut stage = "connecting";
        tokio::time::timeout(CONNECT_TIMEOUT, self.open(protocol, pushes, &mut stage)).await.unwrap_or_else(|_| {
            let seconds = CONNECT_TIMEOUT.as_secs();
            Err(Failure::new(Reason::NoAnswer, format!("{stage} to {}: no answer within {seconds} s", self.place)))
        })
    }

    async fn open(
        &self,
        protocol: ProtocolVersion,
        pushes: Option<mpsc::UnboundedSender<PushInfo>>,
        stage: &mut &'static str,
    ) -> Result<Link, Failure> {
        let endpoint = &self.endpoint;
        let addresses = tokio::net::lookup_host((endpoint.host.as_str(), endpoint.port))
            .await
            .map_err(|error| Failure::new(Reason::NameNotResolved, format!("looking up {}: {error}", endpoint.host)))?;
        let mut refused = Failure::new(Reason::NameNotResolved, format!("{} has no address", endpoint.host));
        let mut stream = None;
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(open) => {
                    stream = Some(open);
                    break;
                }
                Err(error) => refused = Failure::from_connect(&self.place, &error),
            }
        }
        let stream = stream.ok_or(refused)?;
        // Without it each small command would wait for the acknowledgement of the one before.
        stream.set_nodelay(true).map_err(|error| Failure::from_connect(&self.place, &error))?;
        if let Some(tls) = &endpoint.tls {
            *stage = "TLS handshake";
            let stream = self.encrypt(tls, stream).await?;
            *stage = "Redis handshake";
            self.greet(stream, protocol, pushes).await
        } else {
            *stage = "Redis handshake";
            self.greet(stream, protocol, pushes).await
        }
    }

    async fn encrypt(
        &self,
        tls: &Tls,
        stream: TcpStream,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Failure> {
        let name = tls.server_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(&self.endpoint.host);
        let server_name = ServerName::try_from(name.to_owned())
            .map_err(|_| Failure::new(Reason::TlsFailed, format!("server name `{name}` is no host name")))?;
        let connector = TlsConnector::from(Arc::new(client_config(tls)?));
        connector
            .connect(server_name, stream)
            .await
            .map_err(|error| Failure::new(Reason::TlsFailed, format!("TLS handshake with {}: {error}", self.place)))
    }

    async fn greet<S>(
        &self,
        stream: S,
        protocol: ProtocolVersion,
        pushes: Option<mpsc::UnboundedSender<PushInfo>>,
    ) -> Result<Link, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let endpoint = &self.endpoint;
        let mut info = RedisConnectionInfo::default().set_protocol(protocol).set_db(endpoint.database);
        info = info.set_skip_set_lib_name();
        if let Some(username) = &endpoint.username {
            info = info.set_username(username);
        }
        if let Some(password) = &endpoint.password {
            info = info.set_password(password.reveal());
        }
        let mut config = AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER_TIMEOUT));
        if let Some(pushes) = pushes {
            config = config.set_push_sender(pushes);
        }
        let (connection, driver) = MultiplexedConnection::new_with_config(&info, stream, config)
            .await
            .map_err(|error| self.greeting_failed(&error))?;
        let id = ConnectionId(NEXT_ID.fetch_add(1, Ordering::Relaxed));
        Ok(Link { connection, id, driver: tokio::spawn(driver) })
    }

    fn greeting_failed(&self, error: &::redis::RedisError) -> Failure {
        let failure = Failure::from(error);
        match (&self.endpoint.tls, failure.reason) {
            (None, Reason::Disconnected) => Failure::new(
                Reason::NotRedis,
                format!("{} closed the connection at the first words of plain text", self.place),
            ),
            // With TLS 1.3 a refused client certificate is told after the handshake.
            (Some(_), Reason::Disconnected) => {
                Failure::new(Reason::TlsFailed, format!("after the TLS handshake with {}: {error}", self.place))
            }
            _ => failure,
        }
    }
}

fn client_config(tls: &Tls) -> Result<ClientConfig, Failure> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::new(Reason::TlsFailed, error.to_string()))?;
    let builder = if tls.insecure_skip_verify {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(trust::Anybody(provider)))
    } else {
        builder.with_root_certificates(trust::roots(tls.ca_pem.as_deref())?)
    };
    let refused = |part: &str, error: &dyn std::fmt::Display| {
        Failure::new(Reason::TlsFailed, format!("the {part} cannot be used: {error}"))
    };
    match (&tls.client_cert_pem, &tls.client_key_pem) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(chain), Some(key)) => {
            let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| refused("certificate of certFrom", &error))?;
            // The parser's own words are left out, in case they quote the key.
            let key = PrivateKeyDer::from_pem_slice(key.reveal().as_bytes())
                .map_err(|_| refused("key of keyFrom", &"it is not a PEM private key"))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| refused("pair of certFrom and keyFrom", &error))
        }
        _ => Err(Failure::new(Reason::TlsFailed, "certFrom and keyFrom are only of use together")),
    }
}

/// Whose certificates are trusted.
mod trust {
    use std::sync::Arc;

    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

    use super::{Failure, Reason};

    pub(super) fn roots(ca_pem: Option<&str>) -> Result<RootCertStore, Failure> {
        let mut roots = RootCertStore::empty();
        let Some(pem) = ca_pem else {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            return Ok(roots);
        };
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let add = certificate.map_err(|error| error.to_string());
            add.and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string())).map_err(|error| {
                Failure::new(Reason::TlsFailed, format!("the certificate of caFrom cannot be read: {error}"))
            })?;
        }
        if roots.is_empty() {
            return Err(Failure::new(Reason::TlsFailed, "caFrom holds no PEM certificate"));
        }
        Ok(roots)
    }

    /// Trusts any certificate, but still wants the handshake signed with its key.
    #[derive(Debug)]
    pub(super) struct Anybody(pub(super) Arc<CryptoProvider>);

    impl ServerCertVerifier for Anybody {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.signature_verification_algorithms.supported_schemes()
        }
    }
}
