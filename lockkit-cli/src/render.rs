//! Lock states as text and as JSON: pure functions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::time::Duration;

use lockkit::contract::{Holder, LockState};
use serde_json::{Value, json};

/// A lock as JSON. The shape is described in the README and only ever grows.
pub(crate) fn json(state: &LockState, store: &str) -> Value {
    json!({
        "store": store,
        "name": state.name.as_str(),
        "held": !state.holders.is_empty(),
        "holders": state.holders.iter().map(holder_json).collect::<Value>(),
        "token": state.token.map(|token| token.get()),
        "remaining_ms": state.remaining.map(millis),
        "waiters": state.waiters,
    })
}

fn holder_json(holder: &Holder) -> Value {
    json!({
        "id": holder.id,
        "label": holder.label,
        "mode": holder.mode.map(|mode| mode.to_string()),
        "token": holder.token.map(|token| token.get()),
        "held_ms": holder.held_for.map(millis),
        "remaining_ms": holder.remaining.map(millis),
        "note": holder.note,
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// JSON on a line of its own.
pub(crate) fn line(value: &Value) -> String {
    format!("{value}\n")
}

/// Text from elsewhere, on one line and without control sequences of a terminal.
pub(crate) fn plain(text: impl Display) -> String {
    let mut plain = String::new();
    for c in text.to_string().chars() {
        if c.is_control() || is_invisible(c) {
            plain.extend(c.escape_unicode());
        } else {
            plain.push(c);
        }
    }
    plain
}

/// Whether a character is invisible, or can change the order of the text around it.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// One lock in one sentence, without a full stop; `is` may be `was`.
pub(crate) fn sentence(state: &LockState, is: &str) -> String {
    format!("`{}` {is} {}", plain(&state.name), plain(state))
}

/// A time as people read it: whole seconds, or milliseconds below ten of them.
pub(crate) fn rounded(time: Duration) -> String {
    let (seconds, millis) = (time.as_secs(), time.subsec_millis());
    let nanos = if seconds < 10 { millis * 1_000_000 } else { 0 };
    humantime::format_duration(Duration::new(seconds, nanos)).to_string()
}

/// What is known, or else the word for what is not.
fn or(known: Option<impl Display>, unknown: &str) -> String {
    known.map_or_else(|| unknown.to_owned(), |known| known.to_string())
}

/// One lock over several lines.
pub(crate) fn details(state: &LockState, store: &str) -> String {
    let mut text = format!("store      {store}\nname       {}\n", plain(&state.name));
    if state.holders.is_empty() {
        text.push_str("holder     none\n");
    }
    for holder in &state.holders {
        text.push_str(&format!("holder     {}\n", plain(holder)));
        // One holder's token and rest are the lock's.
        let (id, token) = (plain(&holder.id), holder.token);
        let token = token.filter(|_| state.holders.len() > 1);
        let token = token.map_or_else(String::new, |token| format!(", token {token}"));
        text.push_str(&format!("           {id}{token}\n"));
    }
    let endless = match state.holders.is_empty() {
        true => "-",
        false => "until released",
    };
    let remaining = or(state.remaining.map(rounded), endless);
    let (token, waiters) = (or(state.token, "unknown"), or(state.waiters, "unknown"));
    text.push_str(&format!(
        "token      {token}\nremaining  {remaining}\nwaiters    {waiters}\n"
    ));
    text
}

/// The first holder, and how many more there are.
fn holders(state: &LockState) -> String {
    let first = or(state.holders.first().map(plain), "-");
    match state.holders.len() {
        0 | 1 => first,
        holders => format!("{first}; {} more", holders - 1),
    }
}

/// Many locks, one on each line, under a heading.
pub(crate) fn table<'a>(states: impl IntoIterator<Item = &'a LockState>) -> String {
    let mut rows = vec![["NAME", "TOKEN", "LEFT", "WAITERS", "HOLDER"].map(str::to_owned)];
    rows.extend(states.into_iter().map(|state| {
        [
            plain(&state.name),
            or(state.token, "-"),
            or(state.remaining.map(rounded), "-"),
            or(state.waiters, "-"),
            holders(state),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths = [0, 1, 2, 3].map(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(widths) {
            text.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(&row[4]);
        text.push('\n');
    }
    text
}

/// The changes between two polls, each with its kind. The remaining time is not a change.
pub(crate) fn changes(
    before: &BTreeMap<String, LockState>,
    now: &BTreeMap<String, LockState>,
) -> Vec<(&'static str, LockState)> {
    let gone = before.iter().filter(|(name, _)| !now.contains_key(*name));
    let gone = gone.map(|(_, old)| LockState {
        token: old.token,
        ..LockState::new(old.name.clone())
    });
    let states = gone.chain(now.values().cloned());
    let change = |state: LockState| Some((event(before.get(state.name.as_str()), &state)?, state));
    states.filter_map(change).collect()
}

fn event(old: Option<&LockState>, new: &LockState) -> Option<&'static str> {
    let was_held = old.is_some_and(|old| !old.holders.is_empty());
    let is_held = !new.holders.is_empty();
    let waited = old.and_then(|old| old.waiters);
    match (was_held, is_held) {
        (false, true) => Some("held"),
        (true, false) => Some("free"),
        (true, true) if old.is_some_and(|old| ids(old) != ids(new)) => Some("passed"),
        _ if waited.unwrap_or(0) != new.waiters.unwrap_or(0) => Some("waiters"),
        _ => None,
    }
}

/// A store may list holders in any order.
pub(crate) fn ids(state: &LockState) -> BTreeSet<&str> {
    state.holder_ids().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkit::{FencingToken, LockName};

    fn held(name: &str, holder: &str, token: u64) -> LockState {
        let state = LockState::new(LockName::new(name).unwrap());
        LockState {
            token: FencingToken::new(token),
            ..state.with_holder(holder)
        }
    }

    fn map(states: &[&LockState]) -> BTreeMap<String, LockState> {
        let named = |state: &&LockState| (state.name.as_str().to_owned(), (*state).clone());
        states.iter().map(named).collect()
    }

    #[test]
    fn the_json_shape_is_frozen() {
        let mut state = held("a/b", "me:1", 1 << 52);
        state.remaining = Some(Duration::from_millis(1500));
        assert_eq!(
            json(&state, "memory:").to_string(),
            r#"{"held":true,"holders":[{"held_ms":null,"id":"me:1","label":null,"mode":null,"note":null,"remaining_ms":null,"token":null}],"name":"a/b","remaining_ms":1500,"store":"memory:","token":4503599627370496,"waiters":null}"#
        );
        let mut free = LockState::new(LockName::new("x").unwrap());
        free.waiters = Some(2);
        assert_eq!(
            json(&free, "memory:").to_string(),
            r#"{"held":false,"holders":[],"name":"x","remaining_ms":null,"store":"memory:","token":null,"waiters":2}"#
        );
    }

    #[test]
    fn a_change_is_reported_once_with_its_kind() {
        let kinds = |before: &[&LockState], now: &[&LockState]| {
            let changes = changes(&map(before), &map(now)).into_iter();
            changes.map(|(kind, _)| kind).collect::<Vec<_>>()
        };
        let (first, second) = (held("a", "me:1", 1), held("a", "you:1", 2));
        assert_eq!(kinds(&[], &[&first]), ["held"]);
        assert_eq!(kinds(&[&first], &[&second]), ["passed"]);
        assert_eq!(kinds(&[&first], &[]), ["free"]);
        let mut left = first.clone();
        left.remaining = Some(Duration::from_secs(1));
        assert_eq!(kinds(&[&first], &[&left]), [""; 0]);
        let mut waiting = first.clone();
        waiting.waiters = Some(1);
        assert_eq!(kinds(&[&first], &[&waiting]), ["waiters"]);
        let both = first.clone().with_holder("you:1");
        let turned = held("a", "you:1", 1).with_holder("me:1");
        assert_eq!(kinds(&[&both], &[&turned]), [""; 0]);
        assert_eq!(kinds(&[&first], &[&both]), ["passed"]);
    }
}
