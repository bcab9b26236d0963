//! The least rights that poolkeeper needs in Redis, for its documentation and the tests that run with
//! exactly these.

use super::keys::{Namespace, glob_escaped};

/// Commands that are sent.
pub const SENT: &[&str] =
    &["evalsha", "script|load", "select", "ping", "scan", "xrange", "client|tracking", "client|caching"];

/// Commands that scripts call.
pub const IN_SCRIPTS: &[&str] = &[
    "del",
    "exists",
    "get",
    "hdel",
    "hexists",
    "hget",
    "hgetall",
    "hincrby",
    "hlen",
    "hmget",
    "hset",
    "lindex",
    "llen",
    "lmove",
    "scard",
    "set",
    "sismember",
    "smembers",
    "srem",
    "time",
    "xadd",
    "xlen",
    "zadd",
    "zcard",
    "zcount",
    "zrange",
    "zrem",
    "zremrangebyscore",
    "zscore",
];

/// The rules of an ACL user that has exactly the rights needed in one namespace. Without `scan`, in-progress lists that
/// nothing names are not found; without `client`, caps are held by polling; `ping` and `select` (database 0) may be left
/// out.
#[must_use]
pub fn operator_rules(namespace: &Namespace) -> Vec<String> {
    let mut rules = vec![format!("~{}*", glob_escaped(namespace.prefix())), "-@all".to_owned()];
    rules.extend(SENT.iter().chain(IN_SCRIPTS).map(|command| format!("+{command}")));
    rules
}

/// The rules of an ACL user for workers that cannot change caps, so that a cap holds even for the moment of a start. The
/// library logs the refusal and works on. Source: the uses of SET in gocraft/work v0.5.1.
#[must_use]
pub fn worker_rules(namespace: &Namespace) -> Vec<String> {
    let prefix = glob_escaped(namespace.prefix());
    let may_set = ["last_periodic_enqueue", "unique:*", "jobs:*:lock"].map(|key| format!("~{prefix}{key}")).join(" ");
    let mut rules: Vec<String> = ["~*", "&*", "+@all", "-set"].map(Into::into).into();
    rules.push(format!("(+set {may_set})"));
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_the_commands_of_the_scripts_and_no_others() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/lua/gocraft_work");
        let mut scripts = String::new();
        for file in std::fs::read_dir(folder).unwrap() {
            scripts.push_str(&std::fs::read_to_string(file.unwrap().path()).unwrap());
        }
        for call in scripts.split("call('").skip(1) {
            let command = call.split('\'').next().unwrap().to_lowercase();
            assert!(IN_SCRIPTS.contains(&command.as_str()), "{command} is missing");
        }
        for command in IN_SCRIPTS {
            assert!(scripts.contains(&format!("'{}'", command.to_uppercase())), "{command} is not used");
        }
        assert_eq!(operator_rules(&Namespace::new("w*"))[0], "~w\\*:*");
    }
}
