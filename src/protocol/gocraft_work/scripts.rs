//! The scripts below `lua/gocraft_work/`, each with the shared pieces that it uses.

use crate::redis::LuaScript;

macro_rules! lua {
    ($($name:literal),+) => {
        concat!($(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/gocraft_work/", $name, ".lua"))),+)
    };
}

pub(super) static FENCE: LuaScript = LuaScript::new("fence", lua!("need", "fence_entry", "fence"));
pub(super) static OBSERVE: LuaScript = LuaScript::new("observe", lua!("need", "entries", "observe"));
pub(super) static DUE: LuaScript = LuaScript::new("due", lua!("entries", "due"));
pub(super) static BACKLOG: LuaScript = LuaScript::new("backlog", lua!("backlog"));
pub(super) static HOLD_CAPS: LuaScript =
    LuaScript::new("hold_caps", lua!("need", "fence_entry", "fence_check", "hold_caps"));
pub(super) static RECORD_OVERWRITE: LuaScript =
    LuaScript::new("record_overwrite", lua!("need", "fence_entry", "fence_check", "record_overwrite"));
pub(super) static SETTLE: LuaScript = LuaScript::new("settle", lua!("need", "fence_entry", "fence_check", "settle"));
pub(super) static FORGET: LuaScript = LuaScript::new("forget", lua!("need", "fence_entry", "fence_check", "forget"));
pub(super) static UNREAP: LuaScript = LuaScript::new("unreap", lua!("need", "fence_entry", "fence_check", "unreap"));
pub(super) static BIND: LuaScript = LuaScript::new("bind", lua!("need", "fence_entry", "fence_check", "bind"));
pub(super) static CLAIM: LuaScript = LuaScript::new("claim", lua!("need", "fence_entry", "fence_check", "claim"));
pub(super) static RELEASE: LuaScript = LuaScript::new("release", lua!("need", "fence_entry", "release"));
