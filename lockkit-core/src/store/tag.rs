//! The text by which stores name a holder that have one text for each hold: `{id} {label}`, and a note on
//! the lines after it; and the letter of a mode.

use crate::contract::{Holder, HolderId, Mode, Ticket};

/// Writes a mode: `x`, `w`, `r`, or the number of permits.
///
/// # Examples
/// ```
/// use lockkit_core::contract::Mode;
/// use lockkit_core::store::tag;
///
/// assert_eq!(tag::write_mode(Mode::Read), "r");
/// assert_eq!(tag::read_mode("r"), Some(Mode::Read));
/// assert_eq!(tag::read_mode("0"), None);
/// ```
#[must_use]
pub fn write_mode(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => "x".to_owned(),
        Mode::Write => "w".to_owned(),
        Mode::Read => "r".to_owned(),
        Mode::Permit { of } => of.to_string(),
    }
}

/// Reads a mode; `None` if it is none.
#[must_use]
pub fn read_mode(text: &str) -> Option<Mode> {
    Some(match text {
        "x" => Mode::Exclusive,
        "w" => Mode::Write,
        "r" => Mode::Read,
        of => Mode::Permit {
            of: of.parse().ok()?,
        },
    })
}

/// Writes the text of a ticket, with a note or without one.
#[must_use]
pub fn write(ticket: &Ticket, note: Option<&str>) -> String {
    let mut text = ticket.holder.to_string();
    if let Some(label) = &ticket.label {
        text.push(' ');
        text.push_str(label);
    }
    if let Some(note) = note {
        text.push('\n');
        text.push_str(note);
    }
    text
}

/// Reads the text of a ticket; `None` if another program wrote it.
///
/// # Examples
/// ```
/// use lockkit_core::store::tag;
///
/// let text = "00000000-0000-0000-0000-000000000001:2 web-1:4711 shop\ninvoice 12";
/// let holder = tag::read(text).unwrap();
/// assert_eq!(holder.id, "00000000-0000-0000-0000-000000000001:2");
/// assert_eq!(holder.label.unwrap(), "web-1:4711 shop");
/// assert_eq!(holder.note.unwrap(), "invoice 12");
/// assert!(tag::read("somebody else").is_none());
/// ```
#[must_use]
pub fn read(text: &str) -> Option<Holder> {
    let (who, note) = match text.split_once('\n') {
        Some((who, note)) => (who, Some(note.to_owned())),
        None => (text, None),
    };
    let (id, label) = match who.split_once(' ') {
        Some((id, label)) => (id, Some(label.to_owned())),
        None => (who, None),
    };
    id.parse::<HolderId>().ok()?;
    Some(Holder {
        label,
        note,
        ..Holder::new(id)
    })
}
