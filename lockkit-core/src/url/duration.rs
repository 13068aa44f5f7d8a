//! Durations as people write them in URLs and on command lines.

use std::time::Duration;

/// The units, the longer names of a common letter first.
const UNITS: [(&str, u64); 6] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
];

/// Reads a whole number with a unit: `250us`, `500ms`, `2s`, `1m`, `1h`, `7d`.
///
/// # Errors
/// - [`InvalidDuration`] if it is anything else, or longer than the clock counts.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use lockkit_core::url::parse_duration;
///
/// assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
/// assert!(parse_duration("500").is_err());
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, InvalidDuration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| InvalidDuration)?;
    let (_, micros) = UNITS
        .into_iter()
        .find(|(name, _)| *name == unit)
        .ok_or(InvalidDuration)?;
    let micros = number.checked_mul(micros).ok_or(InvalidDuration)?;
    Ok(Duration::from_micros(micros))
}

/// Writes a duration as [`parse_duration`] reads it, in the largest unit of which it is a whole number;
/// what is shorter than a microsecond is left out.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use lockkit_core::url::format_duration;
///
/// assert_eq!(format_duration(Duration::from_secs(86_400)), "1d");
/// assert_eq!(format_duration(Duration::from_millis(1_500)), "1500ms");
/// ```
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let micros = duration.as_micros();
    let whole = |(_, unit): &&(&str, u64)| micros.is_multiple_of(u128::from(*unit));
    let largest = UNITS.iter().rev().find(whole);
    let (name, unit) = largest.filter(|_| micros > 0).unwrap_or(&("s", 1_000_000));
    format!("{}{name}", micros / u128::from(*unit))
}

/// Says that a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a whole number and its unit: `250us`, `500ms`, `30s`, `5m`, `1h` or `7d`")]
#[non_exhaustive]
pub struct InvalidDuration;
