//! What an operator sees of a lock and of its holders.

use std::fmt;
use std::time::Duration;

use super::capability::Mode;
use super::name::LockName;
use super::token::FencingToken;

/// One holder of a lock, as far as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[expect(
    clippy::exhaustive_structs,
    reason = "stores write it with `..Holder::new(id)`"
)]
pub struct Holder {
    /// `{client}:{n}` for holds of this library, else the store's own words.
    pub id: String,
    /// Which program it is: `host:pid program`, unless its client has another label.
    pub label: Option<String>,
    /// What kind of hold; `None` for another program's.
    pub mode: Option<Mode>,
    /// The token of the hold.
    pub token: Option<FencingToken>,
    /// For how long it has held, if the store knows.
    pub held_for: Option<Duration>,
    /// Until the lease ends, if it ends by itself.
    pub remaining: Option<Duration>,
    /// What the holder says of itself.
    pub note: Option<String>,
}

impl Holder {
    /// A holder of which nothing else is known.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            label: None,
            mode: None,
            token: None,
            held_for: None,
            remaining: None,
            note: None,
        }
    }
}

/// `web-1:4711 nightly.sh (read) for 3m, note "invoice"`: its label, or its id if it has none.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Plain(self.label.as_ref().unwrap_or(&self.id)))?;
        if let Some(mode) = self.mode.filter(|mode| !mode.is_exclusive()) {
            write!(f, " ({mode})")?;
        }
        if let Some(time) = self.held_for {
            write!(f, " for {}", rounded(time))?;
        }
        if let Some(note) = &self.note {
            write!(f, ", note \"{}\"", Plain(note))?;
        }
        Ok(())
    }
}

/// Text of another program, on one line and without control sequences of a terminal.
pub(super) struct Plain<'a>(pub(super) &'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c.is_control() {
            true => write!(f, "{}", c.escape_unicode()),
            false => write!(f, "{c}"),
        })
    }
}

/// A time in whole seconds, or with a decimal below ten of them.
fn rounded(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 10 {
        return format!("{time:.1?}");
    }
    let parts = [
        (seconds / 3600, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    let parts = parts.into_iter().filter(|(number, _)| *number > 0);
    let parts: Vec<_> = parts
        .map(|(number, unit)| format!("{number}{unit}"))
        .collect();
    parts.join(" ")
}

impl From<&str> for Holder {
    fn from(id: &str) -> Self {
        Self::new(id)
    }
}

/// What an operator sees of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[expect(
    clippy::exhaustive_structs,
    reason = "stores write it with `..LockState::new(name)`"
)]
pub struct LockState {
    /// Its name.
    pub name: LockName,
    /// Who holds it.
    pub holders: Vec<Holder>,
    /// The largest token of the holds, or the last one given, if the store keeps one.
    pub token: Option<FencingToken>,
    /// Until the last lease ends, if it ends by itself.
    pub remaining: Option<Duration>,
    /// How many wait, if the store knows.
    pub waiters: Option<u32>,
}

impl LockState {
    /// A lock without a holder, of which nothing else is known.
    #[must_use]
    pub const fn new(name: LockName) -> Self {
        Self {
            name,
            holders: Vec::new(),
            token: None,
            remaining: None,
            waiters: None,
        }
    }

    /// Adds a holder. The lock's token is the largest one, and it ends with the last lease.
    #[must_use]
    pub fn with_holder(mut self, holder: impl Into<Holder>) -> Self {
        let holder = holder.into();
        self.token = self.token.max(holder.token);
        self.remaining = self.remaining.max(holder.remaining);
        self.holders.push(holder);
        self
    }

    /// The ids of the holders.
    pub fn holder_ids(&self) -> impl Iterator<Item = &str> {
        self.holders.iter().map(|holder| holder.id.as_str())
    }
}

/// How many holders the text of a lock names.
const NAMED: usize = 3;

/// `held by web-1:4711 nightly.sh for 3m, token 7, 12s left, 4 waiting`, or `free`.
impl fmt::Display for LockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.holders.is_empty() {
            f.write_str("free")?;
        }
        for (place, holder) in self.holders.iter().take(NAMED).enumerate() {
            let before = if place == 0 { "held by " } else { "; " };
            write!(f, "{before}{holder}")?;
        }
        if self.holders.len() > NAMED {
            write!(f, "; {} more", self.holders.len() - NAMED)?;
        }
        if let Some(token) = self.token {
            write!(f, ", token {token}")?;
        }
        if let Some(left) = self.remaining {
            write!(f, ", {} left", rounded(left))?;
        }
        match self.waiters {
            None | Some(0) => Ok(()),
            Some(waiters) => write!(f, ", {waiters} waiting"),
        }
    }
}
