//! Any name works, and no name reaches another's keys. INV-15.

use lockkit_core::{Error, LockName};

use crate::case::Case;
use crate::ctx::Ctx;
use crate::failure::{Failure, Outcome, ensure};
use crate::task::soon;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(odd_names_work_like_others),
        Case::new(odd_names_stay_apart),
        Case::new(longest_names_stay_apart),
        Case::new(names_within_names_stay_apart),
        Case::new(invalid_names_are_refused),
    ]
}

/// Names that mean something to a file system, a key space, a query or a terminal.
const ODD_NAMES: &[&str] = &[
    "a",
    "A",
    "ä",
    "a\u{308}",
    "ａ",
    "a/b",
    "a/",
    "/a",
    "//",
    ".",
    "..",
    "../a",
    "../../etc/x",
    "~",
    "-",
    "--help",
    "a b",
    " a",
    "a ",
    "a.",
    "a.lock",
    "con",
    "nul",
    "%",
    "%2f",
    "%2F",
    "%%",
    "{a}",
    "{",
    "}",
    "{}",
    "{a}b",
    "a{b}c",
    "a:b",
    "a;b",
    "a'b",
    "a\"b",
    "'; DROP TABLE x; --",
    "a\\b",
    "a*",
    "?",
    "[a]",
    "$a",
    "`a`",
    "a|b",
    "a&b",
    "<a>",
    "#",
    "!",
    "@",
    "=",
    "+",
    ",",
    "line\nbreak",
    "tab\t",
    "\r",
    "\u{1}",
    "\u{7f}",
    "\u{1F512}",
    "\u{1F512}\u{200D}\u{1F511}",
    "\u{202E}a",
    "\u{FEFF}a",
    "null",
    "0",
    "00",
    "_c_",
    "lockkit_queue",
    "-lock-0000000001",
];

fn odd_names() -> Vec<String> {
    ODD_NAMES.iter().map(|name| (*name).to_owned()).collect()
}

/// Every odd name can be taken, is taken then, and can be given back.
async fn odd_names_work_like_others(ctx: &Ctx) -> Outcome {
    let (a, b) = ctx.two().await?;
    for name in odd_names() {
        let fail = |what: &str| Failure::new(format!("{name:?} {what}"));
        let guard = soon(a.lock(name.as_str())?.acquire()).await??;
        let lock = b.lock(name.as_str())?;
        ensure(
            lock.try_acquire().await?.is_none(),
            format!("{name:?} twice"),
        )?;
        let state = lock.inspect().await?.ok_or_else(|| fail("is not seen"))?;
        ensure(
            state.name.as_str() == name,
            format!("{name:?} is {state:?}"),
        )?;
        guard.release().await?;
        let guard = lock
            .try_acquire()
            .await?
            .ok_or_else(|| fail("stays held"))?;
        guard.release().await?;
    }
    Ok(())
}

/// All odd names can be held at the same time, by one client each.
async fn odd_names_stay_apart(ctx: &Ctx) -> Outcome {
    all_at_once(ctx, odd_names()).await
}

/// Names of the greatest length that differ in one place.
async fn longest_names_stay_apart(ctx: &Ctx) -> Outcome {
    let long = "x".repeat(LockName::MAX_LEN);
    let mut names = vec![long.clone(), long[1..].to_owned()];
    for place in [0, 100, 254, 255, 256, LockName::MAX_LEN - 1] {
        let mut name = long.clone();
        name.replace_range(place..=place, "y");
        names.push(name);
    }
    // Four bytes a character: a store that counts characters would cut them, or not take them.
    names.push("\u{1F512}".repeat(LockName::MAX_LEN / 4));
    names.push("%".repeat(LockName::MAX_LEN));
    names.push("/".repeat(LockName::MAX_LEN));
    all_at_once(ctx, names).await
}

/// A name and its parts, as a store with a hierarchy might mix them up.
async fn names_within_names_stay_apart(ctx: &Ctx) -> Outcome {
    let base = ctx.name();
    let names = ["", "/", "/a", "/a/b", ":a", ".lock", "{a}", "%2Fa", "\n"];
    let names = names.iter().map(|rest| format!("{base}{rest}"));
    let names: Vec<String> = names.collect();
    all_at_once(ctx, names.clone()).await?;
    // The outer ones last: what is taken inside must not count for them.
    all_at_once(ctx, names.into_iter().rev().collect()).await
}

/// Empty, too long, with a NUL byte: refused before anything is sent.
async fn invalid_names_are_refused(ctx: &Ctx) -> Outcome {
    let client = ctx.client().await?;
    for name in ["", "a\0b", "\0", &"x".repeat(LockName::MAX_LEN + 1)] {
        let error = client.lock(name).err();
        ensure(
            matches!(error, Some(Error::InvalidName(_))),
            format!("{name:?}: {error:?}"),
        )?;
    }
    Ok(())
}

async fn all_at_once(ctx: &Ctx, names: Vec<String>) -> Outcome {
    // How fast the machine is does not matter here.
    let a = ctx.builder(ctx.store().await?).lease(ctx.long()).build()?;
    let b = ctx.builder(ctx.store().await?).lease(ctx.long()).build()?;
    let mut held = Vec::new();
    for (n, name) in names.iter().enumerate() {
        let client = if n % 2 == 0 { &a } else { &b };
        let guard = client.lock(name.as_str())?.try_acquire().await?;
        let guard = guard.ok_or_else(|| Failure::new(format!("{name:?} is another's")))?;
        held.push(guard);
    }
    for (guard, name) in held.iter().zip(&names) {
        guard.check()?;
        let state = a.lock(name.as_str())?.inspect().await?;
        let holder = guard.holder().to_string();
        let right = state.is_some_and(|state| state.holder_ids().eq([holder.as_str()]));
        ensure(right, format!("{name:?} shows another's holder"))?;
    }
    for guard in held {
        guard.release().await?;
    }
    Ok(())
}
