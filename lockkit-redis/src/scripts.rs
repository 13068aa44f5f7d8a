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
    /// Whether it may start a lease or write for the caller, so that `acks` counts the replicas that have it.
    pub(crate) acked: bool,
    text: Cow<'static, str>,
    sha: String,
}

impl Step {
    fn new(name: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        Self {
            name,
            acked: matches!(
                name,
                "attempt" | "renew" | "adopt" | "commit" | "apply" | "guarded work"
            ),
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

type LazyStep = LazyLock<Step>;

pub(crate) static ACQUIRE: LazyStep =
    LazyStep::new(|| Step::new("attempt", queue_and!("kind", "acquire")));
pub(crate) static RELEASE: LazyStep =
    LazyStep::new(|| Step::new("release", queue_and!("ending", "release")));
pub(crate) static RENEW: LazyStep =
    LazyStep::new(|| Step::new("renew", include_str!("scripts/renew.lua")));
/// As [`ACQUIRE`], on one node of several.
pub(crate) static ACCEPT: LazyStep =
    LazyStep::new(|| Step::new("attempt", queue_and!("kind", "accept")));
/// As [`ACQUIRE`] and [`RELEASE`], for tickets that are not exclusive.
pub(crate) static SHARE: LazyStep =
    LazyStep::new(|| Step::new("attempt", queue_and!("kind", "share")));
pub(crate) static UNSHARE: LazyStep = LazyStep::new(|| Step::new("release", queue_and!("unshare")));
pub(crate) static INSPECT: LazyStep =
    LazyStep::new(|| Step::new("inspect", queue_and!("kind", "describe", "inspect")));
/// As [`INSPECT`], for each lock in a list.
pub(crate) static LIST: LazyStep =
    LazyStep::new(|| Step::new("list", queue_and!("kind", "describe", "inspect")));
pub(crate) static BREAK: LazyStep =
    LazyStep::new(|| Step::new("break", queue_and!("kind", "describe", "break")));
pub(crate) static NOTE: LazyStep = LazyStep::new(|| Step::new("note", queue_and!("note")));
pub(crate) static ADOPT: LazyStep = LazyStep::new(|| Step::new("adopt", queue_and!("adopt")));
/// Asks a server for its quarantine.
pub(crate) static ADMIT: LazyStep =
    LazyStep::new(|| Step::new("admit", include_str!("scripts/admit.lua")));
pub(crate) static COMMANDS: LazyStep = LazyStep::new(|| {
    Step::guarded(concat!(
        include_str!("scripts/commands.lua"),
        "return commands(1, #ARGV)\n"
    ))
});
/// As [`ACQUIRE`], with commands that read.
pub(crate) static ENTER: LazyStep = LazyStep::new(|| {
    let text = concat!(
        queue_and!("kind", "carry", "commands"),
        "local function step()\n",
        include_str!("scripts/acquire.lua"),
        "end\n",
        include_str!("scripts/enter.lua")
    );
    Step::new("attempt", text)
});
/// As [`RELEASE`], with commands that write.
pub(crate) static COMMIT: LazyStep = LazyStep::new(|| {
    Step::new(
        "commit",
        queue_and!("ending", "carry", "commands", "commit"),
    )
});

/// A script of the caller. An error that it returns or raises may come after its writes, whatever it is, and be none of
/// the server's: one that it raises loses its code, as if the script had caught it.
fn work(text: &str) -> String {
    format!(
        "local function is_error(it) return type(it) == 'table' and type(it['err']) == 'string' end\n\
         local raise = error\n\
         local function error(it, level)\n\
         if is_error(it) then raise(it['err'], 0) end\n\
         raise(it, level == 0 and 0 or (level or 1) + 1)\n\
         end\n\
         local function work()\n{text}\nend\n\
         local reply = work()\n\
         if is_error(reply) then return redis.error_reply('{PARTLY} ' .. reply['err']) end\n\
         return reply\n"
    )
}

/// These precede a script of the caller.
const GUARD: &str = concat!(
    include_str!("scripts/arguments.lua"),
    include_str!("scripts/guard.lua")
);
const APPLY: &str = queue_and!("arguments", "apply");
