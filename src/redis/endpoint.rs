//! Which Redis server, which database, and as whom. Equal endpoints share a connection, so everything that makes a
//! connection another one is part of equality, credentials included.

use std::fmt;
use std::sync::Arc;

/// A text that must appear in no log, error or event.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a secret text.
    #[must_use]
    pub fn new(text: impl AsRef<str>) -> Self {
        Self(text.as_ref().into())
    }

    /// The text itself, for the wire only.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// How the server is authenticated, and we to it. All texts are PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Tls {
    /// Certificates of the authorities that are trusted; `None`: the usual public ones.
    pub ca_pem: Option<String>,
    /// Our certificate chain; goes with `client_key_pem`.
    pub client_cert_pem: Option<String>,
    /// Our private key; goes with `client_cert_pem`.
    pub client_key_pem: Option<Secret>,
    /// The name that the server's certificate must carry; `None`: the host.
    pub server_name: Option<String>,
    /// Trust any certificate. Anybody in between can then read everything, the password too.
    pub insecure_skip_verify: bool,
}

/// One database of one Redis server, with credentials.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Database number.
    pub database: i64,
    /// ACL user; `None`: the user `default`.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
    /// TLS settings; `None`: plain text.
    pub tls: Option<Tls>,
}

/// What is wrong with the URL of a Redis server. Never shows the URL itself, which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Neither `redis` nor `rediss`.
    #[error("scheme `{0}` of the Redis URL is not known; write redis://host:port/database, or rediss:// for TLS")]
    Scheme(String),
    /// Not of the form `scheme://…` at all.
    #[error("the Redis URL has no scheme; write redis://host:port/database, or rediss:// for TLS")]
    NoScheme,
    /// No host.
    #[error("the Redis URL has no host; write redis://host:port/database")]
    NoHost,
    /// A host that can be none.
    #[error(
        "the host in the Redis URL is not valid; if the password holds one of / ? # @, percent-encode it \
         or give it with passwordFrom"
    )]
    Host,
    /// Not a number from 1 to 65535.
    #[error(
        "the port in the Redis URL is not a number from 1 to 65535; if the password holds one of / ? # @, \
         percent-encode it or give it with passwordFrom"
    )]
    Port,
    /// Not a number.
    #[error("database `{0}` of the Redis URL is not a number; write redis://host:port/0")]
    Database(String),
    /// Broken percent-encoding.
    #[error("the {0} in the Redis URL is not valid percent-encoding; write % as %25, or give it with {1}")]
    Encoding(&'static str, &'static str),
    /// Options behind a question mark.
    #[error("option `{0}` of the Redis URL is not supported; take away the part from the question mark on")]
    Option(String),
}

impl Endpoint {
    /// Reads `redis://[user[:password]@]host[:port][/database]`, or `rediss://` for TLS. User and password are
    /// percent-decoded; the port is 6379 and the database 0 unless given.
    pub fn parse(url: &str) -> Result<Self, EndpointError> {
        let (scheme, rest) = url.trim().split_once("://").ok_or(EndpointError::NoScheme)?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "redis" => None,
            "rediss" => Some(Tls::default()),
            _ if scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+') => {
                return Err(EndpointError::Scheme(scheme.to_owned()));
            }
            _ => return Err(EndpointError::NoScheme),
        };
        let (authority, tail) = rest.find(['/', '?', '#']).map_or((rest, ""), |at| rest.split_at(at));
        if tail.contains('@') {
            return Err(EndpointError::Host);
        }
        let (credentials, place) = match authority.rsplit_once('@') {
            Some((credentials, place)) => (Some(credentials), place),
            None => (None, authority),
        };
        let (host, port) = host_and_port(place)?;
        let (username, password) = match credentials.map(|c| c.split_once(':').unwrap_or((c, ""))) {
            None => (None, None),
            Some((user, password)) => {
                (decoded(user, "user name", "usernameFrom")?, decoded(password, "password", "passwordFrom")?)
            }
        };
        Ok(Self { host, port, database: database(tail)?, username, password: password.map(Secret::new), tls })
    }

    /// The same with another user name, taken as it is.
    #[must_use]
    pub fn with_username(mut self, username: impl Into<String>) -> Self {
        self.username = Some(username.into());
        self
    }

    /// The same with another password, taken as it is.
    #[must_use]
    pub fn with_password(mut self, password: Secret) -> Self {
        self.password = Some(password);
        self
    }

    /// The same over TLS.
    #[must_use]
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Whether the URL said `rediss`.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }
}

/// `host:port/database`, without credentials.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{open}{}{close}:{}/{}", self.host, self.port, self.database)
    }
}

fn host_and_port(place: &str) -> Result<(String, u16), EndpointError> {
    let (host, port) = if let Some(rest) = place.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or(EndpointError::Host)?;
        (host, if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or(EndpointError::Port)?) })
    } else {
        match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        }
    };
    if host.is_empty() {
        return Err(EndpointError::NoHost);
    }
    if host.chars().any(|c| c.is_whitespace() || c.is_control() || "@/\\%".contains(c)) {
        return Err(EndpointError::Host);
    }
    let port = match port {
        None | Some("") => 6379,
        Some(text) => text.parse().ok().filter(|port| *port != 0).ok_or(EndpointError::Port)?,
    };
    Ok((host.to_owned(), port))
}

fn database(tail: &str) -> Result<i64, EndpointError> {
    let (path, options) = tail.find(['?', '#']).map_or((tail, ""), |at| tail.split_at(at));
    for option in options.trim_start_matches(['?', '#']).split('&').filter(|option| !option.is_empty()) {
        let name = option.split('=').next().unwrap_or_default();
        if name != "protocol" {
            return Err(EndpointError::Option(name.to_owned()));
        }
    }
    let text = path.trim_matches('/');
    if text.is_empty() {
        return Ok(0);
    }
    text.parse::<u32>().map(i64::from).map_err(|_| EndpointError::Database(text.to_owned()))
}

fn decoded(text: &str, part: &'static str, field: &'static str) -> Result<Option<String>, EndpointError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'%' {
            let digits = after.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
            let value = digits.filter(|pair| pair.chars().all(|c| c.is_ascii_hexdigit()));
            let value = value.and_then(|pair| u8::from_str_radix(pair, 16).ok());
            bytes.push(value.ok_or(EndpointError::Encoding(part, field))?);
            rest = &after[2..];
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    let text = String::from_utf8(bytes).map_err(|_| EndpointError::Encoding(part, field))?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_part_of_a_url() {
        let plain = Endpoint::parse("redis://redis").unwrap();
        assert_eq!(plain.to_string(), "redis:6379/0");
        let full = Endpoint::parse("rediss://app:p%40ss%3Aw%2Frd%231%25@[::1]:6380/2?protocol=resp3").unwrap();
        assert_eq!(full.to_string(), "[::1]:6380/2");
        assert_eq!(full.username.as_deref(), Some("app"));
        assert_eq!(full.password.as_ref().map(Secret::reveal), Some("p@ss:w/rd#1%"));
        assert!(full.is_tls());
        let only_password = Endpoint::parse("redis://:x@h/1").unwrap();
        assert_eq!((only_password.username, only_password.database), (None, 1));
    }

    #[test]
    fn says_which_part_is_wrong_and_never_the_password() {
        for (url, part) in [
            ("h:6379", "no scheme"),
            ("http://h", "scheme `http`"),
            ("redis://", "no host"),
            ("redis://u:hunter2@", "no host"),
            ("redis://u:hunter2@h:port", "port"),
            ("redis://u:hun/ter2@h", "percent-encode"),
            ("redis://u:hunter2%zz@h", "password"),
            ("redis://u:hunter2@h/mail", "database `mail`"),
            ("redis://u:hunter2@h?timeout=1", "option `timeout`"),
            ("redis://h:0", "port"),
        ] {
            let error = Endpoint::parse(url).unwrap_err().to_string();
            assert!(error.contains(part), "{url}: {error}");
            assert!(!error.contains("hunter") && !error.contains("ter2"), "{error}");
        }
    }

    #[test]
    fn never_shows_a_password() {
        let endpoint = Endpoint::parse("redis://app:hunter2@h").unwrap().with_password(Secret::new("p@ss:w/rd#1%"));
        assert!(!format!("{endpoint:?} {endpoint}").contains("p@ss"));
        assert_eq!(endpoint.password.as_ref().map(Secret::reveal), Some("p@ss:w/rd#1%"));
    }
}
