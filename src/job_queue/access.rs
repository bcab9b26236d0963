//! From a `JobQueue`'s `spec.redis` and the Secrets that it names to an endpoint.
//!
//! Secrets are read by `get` and name alone, never listed or watched, and read again on a timer and when Redis refuses us.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};

use crate::api::condition::reason;
use crate::api::job_queue::{CaSource, KeyRef, RedisSpec, SecretSource, TlsSpec};
use crate::redis::endpoint::{Endpoint, Secret as RedisSecret, Tls};

/// Why there is no endpoint. The message names the field, what it names, and what to do; never a value out of a Secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AccessError {
    /// The condition's reason.
    pub reason: &'static str,
    /// What to tell the user.
    pub message: String,
    /// Whether trying again later may help without the user changing this resource.
    pub transient: bool,
}

impl AccessError {
    fn invalid(message: String) -> Self {
        Self { reason: reason::INVALID_REDIS, message, transient: false }
    }

    /// The API server did not answer in time.
    #[must_use]
    pub fn slow() -> Self {
        Self {
            reason: reason::SECRET_MISSING,
            message: "spec.redis: the API server did not answer in time when the Secrets were read".into(),
            transient: true,
        }
    }
}

/// Reads what the spec names and makes the endpoint. `in_cluster`: a host without a dot is a Service of the `JobQueue`'s
/// namespace, as it is for the workers.
pub async fn resolve(
    client: &Client,
    namespace: &str,
    in_cluster: bool,
    spec: &RedisSpec,
) -> Result<Endpoint, AccessError> {
    let source = Source { client, namespace };
    let (field, url) = match (&spec.url, &spec.url_from) {
        (Some(url), _) => ("spec.redis.url", url.clone()),
        (None, Some(from)) => ("spec.redis.urlFrom", source.text("spec.redis.urlFrom", from).await?),
        (None, None) => return Err(AccessError::invalid("spec.redis: set exactly one of url and urlFrom".into())),
    };
    let mut endpoint = Endpoint::parse(&url).map_err(|error| AccessError::invalid(format!("{field}: {error}")))?;
    if let Some(from) = &spec.username_from {
        endpoint = endpoint.with_username(source.text("spec.redis.usernameFrom", from).await?);
    }
    if let Some(from) = &spec.password_from {
        endpoint = endpoint.with_password(RedisSecret::new(source.text("spec.redis.passwordFrom", from).await?));
    }
    if let Some(tls) = &spec.tls {
        if !endpoint.is_tls() {
            return Err(AccessError::invalid(format!(
                "spec.redis.tls needs a URL that begins with rediss://, and {field} does not"
            )));
        }
        endpoint = endpoint.with_tls(source.tls(tls).await?);
    }
    if in_cluster { Ok(in_namespace(endpoint, namespace)) } else { Ok(endpoint) }
}

/// The same server by a name that means the same in every namespace. Its certificate is for the name as it was given.
fn in_namespace(mut endpoint: Endpoint, namespace: &str) -> Endpoint {
    if endpoint.host.contains(['.', ':']) || endpoint.host == "localhost" {
        return endpoint;
    }
    let given = endpoint.host.clone();
    if let Some(tls) = &mut endpoint.tls {
        tls.server_name.get_or_insert(given);
    }
    endpoint.host = format!("{}.{namespace}.svc", endpoint.host);
    endpoint
}

struct Source<'a> {
    client: &'a Client,
    namespace: &'a str,
}

impl Source<'_> {
    async fn text(&self, field: &str, from: &SecretSource) -> Result<String, AccessError> {
        let bytes = self.bytes(field, from).await?;
        let text = String::from_utf8(bytes).map_err(|_| {
            let KeyRef { name, key } = &from.secret_key_ref;
            AccessError::invalid(format!("{field}: key {key:?} of Secret {name:?} is not UTF-8 text"))
        })?;
        Ok(without_line_end(text))
    }

    async fn bytes(&self, field: &str, from: &SecretSource) -> Result<Vec<u8>, AccessError> {
        let KeyRef { name, key } = &from.secret_key_ref;
        let secret = self.get::<Secret>(field, "Secret", name).await?;
        secret
            .data
            .and_then(|mut data| data.remove(key))
            .map(|bytes| bytes.0)
            .ok_or_else(|| missing_key(field, "Secret", name, key))
    }

    async fn tls(&self, spec: &TlsSpec) -> Result<Tls, AccessError> {
        let mut tls = Tls {
            insecure_skip_verify: spec.insecure_skip_verify,
            server_name: spec.server_name.clone(),
            ..Tls::default()
        };
        if let Some(from) = &spec.ca_from {
            tls.ca_pem = Some(pem("spec.redis.tls.caFrom", self.ca(from).await?)?);
        }
        if let Some(from) = &spec.cert_from {
            tls.client_cert_pem =
                Some(pem("spec.redis.tls.certFrom", self.bytes("spec.redis.tls.certFrom", from).await?)?);
        }
        if let Some(from) = &spec.key_from {
            let key = pem("spec.redis.tls.keyFrom", self.bytes("spec.redis.tls.keyFrom", from).await?)?;
            tls.client_key_pem = Some(RedisSecret::new(key));
        }
        Ok(tls)
    }

    async fn ca(&self, from: &CaSource) -> Result<Vec<u8>, AccessError> {
        const FIELD: &str = "spec.redis.tls.caFrom";
        if let Some(secret) = &from.secret_key_ref {
            return self.bytes(FIELD, &SecretSource { secret_key_ref: secret.clone() }).await;
        }
        let Some(KeyRef { name, key }) = &from.config_map_key_ref else {
            return Err(AccessError::invalid(format!("{FIELD}: set exactly one of secretKeyRef and configMapKeyRef")));
        };
        let map = self.get::<ConfigMap>(FIELD, "ConfigMap", name).await?;
        map.data
            .and_then(|mut data| data.remove(key))
            .map(String::into_bytes)
            .or_else(|| map.binary_data.and_then(|mut data| data.remove(key)).map(|bytes| bytes.0))
            .ok_or_else(|| missing_key(FIELD, "ConfigMap", name, key))
    }

    async fn get<K>(&self, field: &str, kind: &str, name: &str) -> Result<K, AccessError>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let namespace = self.namespace;
        match Api::<K>::namespaced(self.client.clone(), namespace).get_opt(name).await {
            Ok(Some(object)) => Ok(object),
            Ok(None) => Err(AccessError {
                reason: reason::SECRET_MISSING,
                message: format!(
                    "{field}: {kind} {name:?} is not in namespace {namespace:?}; create it or correct the name"
                ),
                transient: true,
            }),
            Err(kube::Error::Api(status)) if status.code == 403 => Err(AccessError {
                reason: reason::SECRET_FORBIDDEN,
                message: format!(
                    "{field}: poolkeeper may not get {kind} {name:?} in namespace {namespace:?}; give its service account that right"
                ),
                transient: true,
            }),
            Err(error) => Err(AccessError {
                reason: reason::SECRET_MISSING,
                message: format!("{field}: {kind} {name:?} could not be read: {}", api_error(&error)),
                transient: true,
            }),
        }
    }
}

/// What the API server said, without the request's content.
#[must_use]
pub fn api_error(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        other => other.to_string(),
    }
}

fn pem(field: &str, bytes: Vec<u8>) -> Result<String, AccessError> {
    String::from_utf8(bytes).map_err(|_| {
        AccessError::invalid(format!("{field}: not PEM text; base64 of the PEM file goes into a Secret's data"))
    })
}

fn missing_key(field: &str, kind: &str, name: &str, key: &str) -> AccessError {
    AccessError {
        reason: reason::SECRET_MISSING,
        message: format!("{field}: {kind} {name:?} has no key {key:?}; add it or correct the key"),
        transient: true,
    }
}

/// `echo secret | base64` leaves a line end that no password has.
fn without_line_end(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_host_is_a_service_of_the_queues_namespace() {
        for (url, host, server_name) in [
            ("redis://redis:6379/0", "redis.shop.svc", None),
            ("rediss://redis", "redis.shop.svc", Some("redis")),
            ("redis://redis.other.svc", "redis.other.svc", None),
            ("redis://10.0.0.1", "10.0.0.1", None),
            ("redis://[::1]:6379", "::1", None),
            ("redis://localhost", "localhost", None),
        ] {
            let endpoint = in_namespace(Endpoint::parse(url).unwrap(), "shop");
            assert_eq!(endpoint.host, host, "{url}");
            assert_eq!(endpoint.tls.and_then(|tls| tls.server_name).as_deref(), server_name, "{url}");
        }
    }

    #[test]
    fn one_line_end_is_no_part_of_a_value() {
        for (given, kept) in [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), (" a ", " a "), ("", "")] {
            assert_eq!(without_line_end(given.into()), kept, "{given:?}");
        }
    }
}
