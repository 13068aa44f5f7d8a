//! The steps of the server: their Lua, and the commands that run them.
//!
//! `EVALSHA` runs a step; after `NOSCRIPT`, `EVAL` sends the whole text, which also loads it. `SCRIPT
//! LOAD` is never sent: proxies refuse it, and in a cluster it goes to every node.

use std::borrow::Cow;

use redis::{Cmd, Script};

/// A script and its digest.
#[derive(Debug)]
pub(crate) struct Step {
    name: &'static str,
    text: Cow<'static, str>,
    sha: String,
}

impl Step {
    fn new(name: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        Self {
            name,
            sha: Script::new(&text).get_hash().to_owned(),
            text,
        }
    }

    /// A script of the caller, which runs only while the lock is held.
    pub(crate) fn guarded(text: &str) -> Self {
        Self::new("guarded work", format!("{GUARD}{text}"))
    }

    /// The name of the operation, for errors.
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// The command by digest.
    pub(crate) fn by_digest(
        &self,
        keys: &[impl AsRef<[u8]>],
        arguments: &[impl AsRef<[u8]>],
    ) -> Cmd {
        command("EVALSHA", &self.sha, keys, arguments)
    }

    /// The command with the whole text.
    pub(crate) fn by_text(&self, keys: &[impl AsRef<[u8]>], arguments: &[impl AsRef<[u8]>]) -> Cmd {
        command("EVAL", &self.text, keys, arguments)
    }
}

fn command(
    verb: &str,
    script: &str,
    keys: &[impl AsRef<[u8]>],
    arguments: &[impl AsRef<[u8]>],
) -> Cmd {
    let words = || {
        let arguments = arguments.iter().map(AsRef::as_ref);
        keys.iter().map(AsRef::as_ref).chain(arguments)
    };
    let bytes: usize = words().map(<[u8]>::len).sum();
    let count = 3 + keys.len() + arguments.len();
    let mut command = Cmd::with_capacity(count, bytes + verb.len() + script.len() + 8);
    command.arg(verb).arg(script).arg(keys.len());
    for word in words() {
        command.arg(word);
    }
    command
}

/// All steps of the store.
#[derive(Debug)]
pub(crate) struct Steps {
    pub(crate) acquire: Step,
    pub(crate) release: Step,
    pub(crate) renew: Step,
    pub(crate) inspect: Step,
    pub(crate) break_lock: Step,
    pub(crate) commands: Step,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self {
            acquire: Step::new("attempt", ACQUIRE),
            release: Step::new("release", RELEASE),
            renew: Step::new("renew", include_str!("scripts/renew.lua")),
            inspect: Step::new("inspect", INSPECT),
            break_lock: Step::new("break", BREAK),
            commands: Step::guarded(include_str!("scripts/commands.lua")),
        }
    }
}

const ACQUIRE: &str = concat!(
    include_str!("scripts/queue.lua"),
    include_str!("scripts/kind.lua"),
    include_str!("scripts/acquire.lua")
);
const RELEASE: &str = concat!(
    include_str!("scripts/queue.lua"),
    include_str!("scripts/release.lua")
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
/// Precedes a script of the caller.
const GUARD: &str = include_str!("scripts/guard.lua");
