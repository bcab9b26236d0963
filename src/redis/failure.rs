//! Why a call to Redis failed: one reason for each kind, fit for a condition, and a text that says what to do.

use std::io;

use ::redis::{ErrorKind, RedisError};

/// The kinds of failures. [`Reason::as_str`] is part of the API of the resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Nothing listens there.
    ConnectionRefused,
    /// The host name is unknown.
    NameNotResolved,
    /// No answer in time.
    NoAnswer,
    /// The TLS handshake failed, or its settings cannot be read.
    TlsFailed,
    /// User name or password refused, or missing.
    WrongPassword,
    /// The user lacks the right to a command or key.
    NoPermission,
    /// The server still loads its data.
    Loading,
    /// Somebody's script blocks the server.
    Busy,
    /// The server is a replica.
    ReadOnly,
    /// The server is out of memory, or refuses writes to guard its data.
    OutOfMemory,
    /// A key has another type than the protocol says.
    WrongType,
    /// The server is part of a cluster, and the keys are another node's, or of several.
    ClusterEnabled,
    /// The connection was lost.
    Disconnected,
    /// The server refused or aborted a script.
    ScriptRefused,
    /// An answer of another shape than expected.
    UnexpectedReply,
    /// What answers does not speak Redis's protocol.
    NotRedis,
}

impl Reason {
    /// The reason of a condition.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConnectionRefused => "ConnectionRefused",
            Self::NameNotResolved => "NameNotResolved",
            Self::NoAnswer => "NoAnswer",
            Self::TlsFailed => "TlsFailed",
            Self::WrongPassword => "WrongPassword",
            Self::NoPermission => "NoPermission",
            Self::Loading => "Loading",
            Self::Busy => "Busy",
            Self::ReadOnly => "ReadOnly",
            Self::OutOfMemory => "OutOfMemory",
            Self::WrongType => "WrongType",
            Self::ClusterEnabled => "ClusterEnabled",
            Self::Disconnected => "Disconnected",
            Self::ScriptRefused => "ScriptRefused",
            Self::UnexpectedReply => "UnexpectedReply",
            Self::NotRedis => "NotRedis",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::ConnectionRefused => "check host and port, and that the server runs",
            Self::NameNotResolved => "check the host name",
            Self::NoAnswer => {
                "check network policies, and that redis:// is used for a plain text port and rediss:// for a TLS port"
            }
            Self::TlsFailed => "check caFrom, certFrom, keyFrom and serverName, and that the port speaks TLS",
            Self::WrongPassword => "check the user name and the password",
            Self::NoPermission => "grant it to this user; docs/redis.md lists what is needed",
            Self::Loading => "wait until the server has loaded its data",
            Self::Busy => "a script of another client blocks the server; it must end or be killed",
            Self::ReadOnly => "this server is a replica; name the primary",
            Self::OutOfMemory => "give the server memory or disk space",
            Self::WrongType => "rename or delete the key of the wrong type",
            Self::ClusterEnabled => "this server is part of a cluster; name a server that is not",
            Self::Disconnected => "connecting again",
            Self::ScriptRefused => "the server must allow Lua scripts (Redis 6.2 or later)",
            Self::UnexpectedReply => "check that this is Redis 6.2 or later, without a proxy that changes answers",
            Self::NotRedis => "check the port, and that rediss:// is used for a TLS port",
        }
    }
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The kind.
    pub reason: Reason,
    /// What happened, in the server's words where it said any, and what to do. Holds no secret.
    pub message: String,
}

impl Failure {
    /// A failure of a kind, with what happened; what to do is added.
    #[must_use]
    pub fn new(reason: Reason, what: impl AsRef<str>) -> Self {
        let what = what.as_ref().trim_end_matches(['.', '\n', '\r', ' ']);
        Self { reason, message: format!("{what}: {}", reason.advice()) }
    }

    /// An answer that a reader could not make sense of.
    #[must_use]
    pub fn unexpected(what: impl AsRef<str>) -> Self {
        Self::new(Reason::UnexpectedReply, what)
    }

    /// Whether the connection must be replaced before the next call.
    #[must_use]
    pub fn drops_connection(&self) -> bool {
        matches!(
            self.reason,
            Reason::ConnectionRefused
                | Reason::NameNotResolved
                | Reason::NoAnswer
                | Reason::TlsFailed
                | Reason::WrongPassword
                | Reason::ReadOnly
                | Reason::Disconnected
                | Reason::NotRedis
        )
    }

    /// Whether the reason is one of the server's or the network's, which may pass without anybody's doing.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        self.drops_connection() || matches!(self.reason, Reason::Loading | Reason::Busy | Reason::OutOfMemory)
    }

    /// What the server refused, from its error line (`CODE text`).
    #[must_use]
    pub fn from_server(code: &str, details: &str) -> Self {
        // Redis 7 adds where in a script it was; that helps nobody who reads a condition.
        let details =
            details.rsplit_once(" script: ").filter(|(_, at)| at.contains(", on @")).map_or(details, |cut| cut.0);
        let line = if details.is_empty() { code.to_owned() } else { format!("{code} {details}") };
        Self::new(reason_of(code, details), line)
    }
}

/// The error codes of Redis 7 `server.c`, `acl.c`, `script.c`; a refusal inside a script keeps the code at its start.
fn reason_of(code: &str, details: &str) -> Reason {
    match code {
        "WRONGPASS" | "NOAUTH" => Reason::WrongPassword,
        "NOPERM" => Reason::NoPermission,
        "LOADING" => Reason::Loading,
        "BUSY" => Reason::Busy,
        "READONLY" | "MASTERDOWN" => Reason::ReadOnly,
        "OOM" | "MISCONF" | "NOREPLICAS" => Reason::OutOfMemory,
        "WRONGTYPE" => Reason::WrongType,
        "MOVED" | "ASK" | "CROSSSLOT" | "CLUSTERDOWN" | "TRYAGAIN" => Reason::ClusterEnabled,
        "NOSCRIPT" | "UNKILLABLE" => Reason::ScriptRefused,
        _ => {
            let says = |text: &str| details.contains(text);
            if says("executing the script can't")
                || says("ACL failure")
                || says("no permissions")
                || says("No permissions")
            {
                Reason::NoPermission
            } else if says("WRONGTYPE") || says("wrong kind of value") {
                Reason::WrongType
            } else if says("-OOM") || says("OOM command not allowed") {
                Reason::OutOfMemory
            } else if says("invalid username-password") || says("invalid password") || says("without any password") {
                Reason::WrongPassword
            } else if says("unknown command") || says("script") || says("Script") {
                Reason::ScriptRefused
            } else {
                Reason::UnexpectedReply
            }
        }
    }
}

impl From<&RedisError> for Failure {
    fn from(error: &RedisError) -> Self {
        let text = error.to_string();
        match error.kind() {
            ErrorKind::Extension | ErrorKind::Server(_) => {
                Self::from_server(error.code().unwrap_or("ERR"), error.detail().unwrap_or(""))
            }
            ErrorKind::AuthenticationFailed => Self::new(Reason::WrongPassword, text),
            ErrorKind::Parse => Self::new(Reason::NotRedis, "the answer is not Redis's protocol"),
            ErrorKind::Io if error.is_timeout() => Self::new(Reason::NoAnswer, "no answer in time"),
            ErrorKind::Io => Self::new(Reason::Disconnected, text),
            _ => Self::new(Reason::UnexpectedReply, text),
        }
    }
}

impl Failure {
    /// What an error of the socket means while connecting to `place`.
    #[must_use]
    pub fn from_connect(place: &str, error: &io::Error) -> Self {
        let reason = match error.kind() {
            io::ErrorKind::ConnectionRefused => Reason::ConnectionRefused,
            io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::WouldBlock => Reason::NoAnswer,
            _ => Reason::Disconnected,
        };
        Self::new(reason, format!("connecting to {place}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_of_the_server_has_its_reason() {
        for (code, details, reason) in [
            ("WRONGPASS", "invalid username-password pair or user is disabled.", Reason::WrongPassword),
            ("NOAUTH", "Authentication required.", Reason::WrongPassword),
            ("NOPERM", "User jobs has no permissions to run the 'scan' command", Reason::NoPermission),
            ("ERR", "ACL failure in script: No permissions to access a key", Reason::NoPermission),
            ("ERR", "The user executing the script can't run this command or subcommand", Reason::NoPermission),
            ("LOADING", "Redis is loading the dataset in memory", Reason::Loading),
            ("BUSY", "Redis is busy running a script.", Reason::Busy),
            ("READONLY", "You can't write against a read only replica.", Reason::ReadOnly),
            ("OOM", "command not allowed when used memory > 'maxmemory'.", Reason::OutOfMemory),
            ("WRONGTYPE", "Operation against a key holding the wrong kind of value", Reason::WrongType),
            ("CROSSSLOT", "Keys in request don't hash to the same slot", Reason::ClusterEnabled),
            ("MOVED", "16261 127.0.0.1:7001", Reason::ClusterEnabled),
            ("ERR", "unknown command 'EVALSHA'", Reason::ScriptRefused),
            ("ERR", "odd", Reason::UnexpectedReply),
        ] {
            let failure = Failure::from_server(code, details);
            assert_eq!(failure.reason, reason, "{code} {details}");
            assert!(failure.message.contains(details.trim_end_matches('.')), "{failure}");
        }
    }

    #[test]
    fn a_refusal_that_a_new_connection_cannot_cure_keeps_the_connection() {
        assert!(!Failure::from_server("NOPERM", "x").drops_connection());
        assert!(!Failure::from_server("BUSY", "x").drops_connection());
        assert!(Failure::from_server("READONLY", "x").drops_connection());
    }
}
