//! A Lua script and the digest by which Redis knows it.

use std::sync::OnceLock;

/// One script, from a file below `lua/`. A static of its user.
#[derive(Debug)]
pub struct LuaScript {
    /// The file's name without its ending, for logs and metrics.
    pub name: &'static str,
    /// The text that Redis is given, shared pieces included.
    pub source: &'static str,
    sha: OnceLock<String>,
}

impl LuaScript {
    /// Names a script; `source` is made of `include_str!`.
    #[must_use]
    pub const fn new(name: &'static str, source: &'static str) -> Self {
        Self { name, source, sha: OnceLock::new() }
    }

    /// SHA-1 of the source, as EVALSHA wants it.
    pub fn sha(&self) -> &str {
        self.sha.get_or_init(|| ::redis::Script::new(self.source).get_hash().to_owned())
    }
}
