//! The steps of the server: their Lua, and the commands that run them.
//!
//! `EVALSHA` runs a step; after `NOSCRIPT`, `EVAL` sends the whole text, which also loads it. `SCRIPT
//! LOAD` is never sent: proxies refuse it, and in a cluster it goes to every node.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::{Arg, Cmd, Script};

/// A script and its digest.
#[derive(Debug)]
pub(crate) struct Step {
    /// The operation, for errors.
    pub(crate) name: &'static str,
    /// Whether it may start a lease.
    pub(crate) leases: bool,
    text: Cow<'static, str>,
    sha: String,
}

impl Step {
    fn new(name: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        Self {
            name,
            leases: matches!(name, "attempt" | "renew" | "adopt"),
            sha: Script::new(&text).get_hash().to_owned(),
            text,
        }
    }

    /// A script of the caller, which runs only while the lock is held.
    pub(crate) fn guarded(text: &str) -> Self {
        Self::new("guarded work", format!("{GUARD}{text}"))
    }

    /// The command by digest, to which the arguments are to be added.
    pub(crate) fn on(&self, keys: &[impl AsRef<[u8]>]) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.sha).arg(keys.len());
        for key in keys {
            command.arg(key.as_ref());
        }
        command
    }

    /// The same command with the whole text.
    pub(crate) fn with_text(&self, by_digest: &Cmd) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(&*self.text);
        for word in by_digest.args_iter().skip(2) {
            if let Arg::Simple(word) = word {
                command.arg(word);
            }
        }
        command
    }
}

/// All steps of the store.
pub(crate) static STEPS: LazyLock<Steps> = LazyLock::new(|| Steps {
    acquire: Step::new("attempt", ACQUIRE),
    release: Step::new("release", RELEASE),
    renew: Step::new("renew", include_str!("scripts/renew.lua")),
    accept: Step::new("attempt", ACCEPT),
    share: Step::new("attempt", SHARE),
    unshare: Step::new("release", UNSHARE),
    renew_shares: Step::new("renew", include_str!("scripts/renew_shares.lua")),
    inspect: Step::new("inspect", INSPECT),
    list: Step::new("list", INSPECT),
    break_lock: Step::new("break", BREAK),
    note: Step::new("note", NOTE),
    adopt: Step::new("adopt", ADOPT),
    admit: Step::new("admit", include_str!("scripts/admit.lua")),
    commands: Step::guarded(include_str!("scripts/commands.lua")),
});

pub(crate) struct Steps {
    pub(crate) acquire: Step,
    pub(crate) release: Step,
    pub(crate) renew: Step,
    /// As `acquire`, on one node of several.
    pub(crate) accept: Step,
    /// As `acquire`, `release` and `renew`, for tickets that are not exclusive.
    pub(crate) share: Step,
    pub(crate) unshare: Step,
    pub(crate) renew_shares: Step,
    pub(crate) inspect: Step,
    /// As `inspect`, for each lock in a list.
    pub(crate) list: Step,
    pub(crate) break_lock: Step,
    pub(crate) note: Step,
    pub(crate) adopt: Step,
    /// Asks a server for its quarantine.
    pub(crate) admit: Step,
    pub(crate) commands: Step,
}

const ACQUIRE: &str = concat!(
    include_str!("scripts/queue.lua"),
    include_str!("scripts/kind.lua"),
    include_str!("scripts/acquire.lua")
);
const ACCEPT: &str = concat!(
    include_str!("scripts/queue.lua"),
    include_str!("scripts/kind.lua"),
    include_str!("scripts/accept.lua")
);
const RELEASE: &str = concat!(
    include_str!("scripts/queue.lua"),
    include_str!("scripts/release.lua")
);
const SHARE: &str = concat!(
    include_str!("scripts/queue.lua"),
    include_str!("scripts/kind.lua"),
    include_str!("scripts/share.lua")
);
const UNSHARE: &str = concat!(
    include_str!("scripts/queue.lua"),
    include_str!("scripts/unshare.lua")
);
const INSPECT: &str = concat!(
    include_str!("scripts/queue.lua"),
    include_str!("scripts/kind.lua"),
    include_str!("scripts/describe.lua"),
    include_str!("scripts/inspect.lua")
);
const BREAK: &str = concat!(
    include_str!("scripts/queue.lua"),
    include_str!("scripts/kind.lua"),
    include_str!("scripts/describe.lua"),
    include_str!("scripts/break.lua")
);
const NOTE: &str = concat!(
    include_str!("scripts/queue.lua"),
    include_str!("scripts/note.lua")
);
const ADOPT: &str = concat!(
    include_str!("scripts/queue.lua"),
    include_str!("scripts/adopt.lua")
);
/// Precedes a script of the caller.
const GUARD: &str = include_str!("scripts/guard.lua");
