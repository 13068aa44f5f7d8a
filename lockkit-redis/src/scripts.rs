//! The steps of the server: their Lua, and the commands that run them.
//!
//! `EVALSHA` runs a step; after `NOSCRIPT`, `EVAL` sends the whole text, which also loads it. `SCRIPT
//! LOAD` is never sent: proxies refuse it, and in a cluster it goes to every node.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::{Arg, Cmd, Script};

use crate::error::PARTLY;

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
        Self::new("guarded work", format!("{GUARD}{}", work(text)))
    }

    /// A script of the caller, which runs only if the lock is free.
    pub(crate) fn applied(text: &str) -> Self {
        Self::new("apply", format!("{APPLY}{}", work(text)))
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

/// The text of a step: `queue.lua`, and these files behind it.
macro_rules! queue_and {
    ($($file:literal),+) => {
        concat!(
            include_str!("scripts/queue.lua"),
            $(include_str!(concat!("scripts/", $file, ".lua"))),+
        )
    };
}

/// All steps of the store.
pub(crate) static STEPS: LazyLock<Steps> = LazyLock::new(|| Steps {
    acquire: Step::new("attempt", queue_and!("kind", "acquire")),
    release: Step::new("release", queue_and!("ending", "release")),
    renew: Step::new("renew", include_str!("scripts/renew.lua")),
    accept: Step::new("attempt", queue_and!("kind", "accept")),
    share: Step::new("attempt", queue_and!("kind", "share")),
    unshare: Step::new("release", queue_and!("unshare")),
    renew_shares: Step::new("renew", include_str!("scripts/renew_shares.lua")),
    inspect: Step::new("inspect", queue_and!("kind", "describe", "inspect")),
    list: Step::new("list", queue_and!("kind", "describe", "inspect")),
    break_lock: Step::new("break", queue_and!("kind", "describe", "break")),
    note: Step::new("note", queue_and!("note")),
    adopt: Step::new("adopt", queue_and!("adopt")),
    admit: Step::new("admit", include_str!("scripts/admit.lua")),
    commands: Step::guarded(concat!(
        include_str!("scripts/commands.lua"),
        "return commands(1, #ARGV)\n"
    )),
    enter: Step::new(
        "attempt",
        concat!(
            queue_and!("kind", "carry", "commands"),
            "local function step()\n",
            include_str!("scripts/acquire.lua"),
            "end\n",
            include_str!("scripts/enter.lua")
        ),
    ),
    commit: Step::new(
        "commit",
        queue_and!("ending", "carry", "commands", "commit"),
    ),
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
    /// As `acquire`, with commands that read.
    pub(crate) enter: Step,
    /// As `release`, with commands that write.
    pub(crate) commit: Step,
}

/// A script of the caller. An error that it returns may come after its writes, whatever it is, and be none of the
/// server's.
fn work(text: &str) -> String {
    format!(
        "local function work()\n{text}\nend\n\
         local reply = work()\n\
         if type(reply) == 'table' and type(reply['err']) == 'string' then\n\
         return redis.error_reply('{PARTLY} ' .. reply['err'])\n\
         end\n\
         return reply\n"
    )
}

/// These precede a script of the caller.
const GUARD: &str = concat!(
    include_str!("scripts/arguments.lua"),
    include_str!("scripts/guard.lua")
);
const APPLY: &str = queue_and!("arguments", "apply");
