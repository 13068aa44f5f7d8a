//! URL options. Each is consumed once; the rest are reported as unknown.

use std::fmt;
use std::time::Duration;

use super::duration::parse_duration;
use super::invalid::InvalidUrl;
use super::percent::percent_decode;
use crate::contract::PollRange;

/// The options after the `?` of a URL.
///
/// A store takes each option that it knows, whether it is there or not. Then it calls
/// [`finish`](Self::finish), which reports an option that was not taken, with all that were asked for.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use lockkit_core::url::StoreUrl;
///
/// let mut url: StoreUrl = "redis://h/?wake=poll&ttl=5s".parse()?;
/// assert_eq!(url.options.duration("ttl")?, Some(Duration::from_secs(5)));
/// assert_eq!(url.options.choice("wake", &[("push", 1), ("poll", 2)])?, Some(2));
/// assert_eq!(url.options.number("token_base")?, None);
/// url.options.finish()?;
/// # Ok::<(), lockkit_core::url::InvalidUrl>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    scheme: String,
    /// Names and values, in order.
    entries: Vec<(String, String)>,
    /// The names that were asked for.
    known: Vec<&'static str>,
}

impl Options {
    /// Reads the part after the `?`.
    pub(super) fn parse(scheme: &str, query: &str) -> Result<Self, InvalidUrl> {
        let mut entries: Vec<(String, String)> = Vec::new();
        let pieces = query.split('&').filter(|piece| !piece.is_empty());
        for (index, piece) in pieces.enumerate() {
            let option = piece.split('=').next().unwrap_or(piece).to_owned();
            if !is_name(&option) {
                // The text is not repeated here: it may be a part of a password.
                return Err(InvalidUrl::new(format!(
                    "option {} of the URL has no valid name: write options as `?ttl=30s&prefix=app:`, and in \
                     a password `?` as `%3F` and `&` as `%26`",
                    index + 1
                )));
            }
            let Some((_, value)) = piece.split_once('=') else {
                return Err(InvalidUrl::new(format!(
                    "the option `{option}` has no value: write `{option}=...`"
                )));
            };
            if entries.iter().any(|(other, _)| *other == option) {
                return Err(InvalidUrl::repeated(&option));
            }
            let value = percent_decode(value).ok_or_else(|| InvalidUrl::bad_escape("query"))?;
            entries.push((option, value));
        }
        Ok(Self {
            scheme: scheme.to_owned(),
            entries,
            known: Vec::new(),
        })
    }

    /// Accepts another name of an option: what the URL gives as `alias` is taken as `name`.
    ///
    /// # Errors
    /// - [`InvalidUrl`] if both are given.
    pub fn alias(&mut self, alias: &str, name: &'static str) -> Result<(), InvalidUrl> {
        let both = [alias, name].map(|wanted| self.names().any(|given| given == wanted));
        if both == [true, true] {
            return Err(InvalidUrl::repeated(name));
        }
        if let Some((given, _)) = self.entries.iter_mut().find(|(given, _)| given == alias) {
            name.clone_into(given);
        }
        Ok(())
    }

    /// Takes an option as it is. The way for secrets: no error repeats the value.
    pub fn text(&mut self, name: &'static str) -> Option<String> {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
        let (_, value) = self.entries.iter().find(|(given, _)| given == name)?;
        Some(value.clone())
    }

    /// Takes a duration such as `500ms` or `30s`.
    ///
    /// # Errors
    /// - [`InvalidUrl`] if it is none.
    pub fn duration(&mut self, name: &'static str) -> Result<Option<Duration>, InvalidUrl> {
        self.parsed(name, |text| {
            parse_duration(text).map_err(|error| error.to_string())
        })
    }

    /// Takes a duration that is longer than nothing.
    ///
    /// # Errors
    /// - [`InvalidUrl`] if it is none, or zero.
    pub fn positive_duration(
        &mut self,
        name: &'static str,
    ) -> Result<Option<Duration>, InvalidUrl> {
        match self.duration(name)? {
            Some(Duration::ZERO) => {
                let why = "it must be longer than nothing, as `30s`";
                Err(InvalidUrl::bad_value(name, "0", why))
            }
            duration => Ok(duration),
        }
    }

    /// Takes the pauses of waiters that poll: `50ms..1s`, or one duration for both.
    ///
    /// # Errors
    /// - [`InvalidUrl`] if it is no range, begins at zero or ends before it begins.
    pub fn poll(&mut self, name: &'static str) -> Result<Option<PollRange>, InvalidUrl> {
        self.parsed(name, |text| {
            let (min, max) = text.split_once("..").unwrap_or((text, text));
            match (parse_duration(min), parse_duration(max)) {
                (Ok(min), Ok(max)) if Duration::ZERO < min && min <= max => {
                    Ok(PollRange::new(min, max))
                }
                _ => Err("write the shortest and the longest pause as `50ms..1s`".to_owned()),
            }
        })
    }

    /// Takes a whole number.
    ///
    /// # Errors
    /// - [`InvalidUrl`] if it is none.
    pub fn number(&mut self, name: &'static str) -> Result<Option<u64>, InvalidUrl> {
        self.parsed(name, |text| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|_| digits);
            number.ok_or_else(|| format!("write a whole number up to {}", u64::MAX))
        })
    }

    /// Takes positive durations, each into the place beside its name; one that is not given stays as it
    /// is.
    ///
    /// # Errors
    /// - [`InvalidUrl`] if one is none, or zero.
    pub fn durations<const N: usize>(
        &mut self,
        places: [(&'static str, &mut Duration); N],
    ) -> Result<(), InvalidUrl> {
        for (name, place) in places {
            *place = self.positive_duration(name)?.unwrap_or(*place);
        }
        Ok(())
    }

    /// Takes `true` or `false`.
    ///
    /// # Errors
    /// - [`InvalidUrl`] if it is neither.
    pub fn flag(&mut self, name: &'static str) -> Result<Option<bool>, InvalidUrl> {
        self.choice(name, &[("true", true), ("false", false)])
    }

    /// Takes one of several words.
    ///
    /// # Errors
    /// - [`InvalidUrl`] if it is none of them; it names them all.
    pub fn choice<T: Clone>(
        &mut self,
        name: &'static str,
        choices: &[(&'static str, T)],
    ) -> Result<Option<T>, InvalidUrl> {
        self.parsed(name, |text| {
            let chosen = choices.iter().find(|(word, _)| *word == text);
            chosen.map(|(_, value)| value.clone()).ok_or_else(|| {
                let words = choices.iter().map(|(word, _)| format!("`{word}`"));
                let words: Vec<String> = words.collect();
                format!("write {}", words.join(" or "))
            })
        })
    }

    /// Takes an option and reads it with `read`, whose error says what to write.
    ///
    /// # Errors
    /// - [`InvalidUrl`] with that error.
    pub fn parsed<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, InvalidUrl> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        match read(&text) {
            Ok(value) => Ok(Some(value)),
            Err(expected) => Err(InvalidUrl::bad_value(name, &text, expected)),
        }
    }

    /// Ends the taking.
    ///
    /// # Errors
    /// - [`InvalidUrl`] if an option was not taken; it names all that were asked for.
    pub fn finish(&mut self) -> Result<(), InvalidUrl> {
        let Some(left) = self.names().find(|given| !self.known.contains(given)) else {
            return Ok(());
        };
        let mut known = self.known.clone();
        known.sort_unstable();
        Err(InvalidUrl::unknown_option(&self.scheme, left, &known))
    }

    /// The names of the options that are given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(name, _)| name.as_str())
    }
}

/// Shows names only: a value may be a secret. INV-14.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// Nothing that is part of a password by mistake should pass for a name.
fn is_name(text: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    !text.is_empty() && text.bytes().all(valid)
}
