//! What can be wrong with a URL, and what to do about it.

/// Says why a URL cannot be used, and what to write instead.
///
/// No message holds a password, a user, a host or a path of the URL. INV-14.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidUrl {
    /// It does not begin with a scheme.
    #[error("a store URL begins with a scheme, as in `memory:` or `file:/var/lib/lockkit`")]
    NoScheme,
    /// No store has this scheme.
    #[error("no store has the scheme `{scheme}`{}: the schemes are {}", did_you_mean(*.nearest), list(.known))]
    UnknownScheme {
        /// The scheme.
        scheme: String,
        /// All schemes.
        known: Vec<&'static str>,
        /// The one that was probably meant.
        nearest: Option<&'static str>,
    },
    /// The store is there, but was not built in.
    #[error(
        "the scheme `{scheme}` needs the feature `{feature}` of the crate `lockkit`: enable it in Cargo.toml"
    )]
    FeatureOff {
        /// The scheme.
        scheme: String,
        /// The Cargo feature that brings the store.
        feature: &'static str,
    },
    /// The store does not run on this operating system.
    #[error("the scheme `{scheme}` does not work on this operating system")]
    UnsupportedHere {
        /// The scheme.
        scheme: String,
    },
    /// An `@` after the hosts: probably a password with a `/` or `?` in it.
    #[error(
        "the URL has an `@` after its hosts: in a user or password write `/` as `%2F`, `?` as `%3F`, `#` as `%23` and `@` as `%40`; in a path or an option write `@` as `%40`"
    )]
    MisplacedAt,
    /// A `#`.
    #[error("the URL has a `#`: write it as `%23`")]
    Fragment,
    /// An escape that is none.
    #[error(
        "the {part} of the URL has a `%` that no two hexadecimal digits follow, or is no UTF-8 text: write `%` itself as `%25`"
    )]
    BadEscape {
        /// Where.
        part: &'static str,
    },
    /// A blank or a control character.
    #[error("the URL has a blank or a control character: write a blank as `%20`")]
    BadCharacter,
    /// A list of hosts with a hole in it.
    #[error("host {position} of the URL is empty: write the hosts as `host:port,host:port`")]
    EmptyHost {
        /// Which one, from 1.
        position: usize,
    },
    /// A port that is none.
    #[error(
        "host {position} of the URL has no valid port: write `host` or `host:port` with a port from 1 to 65535, an IPv6 address in brackets, and in a password `/` as `%2F`, `?` as `%3F` and `#` as `%23`"
    )]
    BadPort {
        /// Which one, from 1.
        position: usize,
    },
    /// Hosts, a user or a path where the store has no use for them, or the lack of them.
    #[error("a URL of the scheme `{scheme}` {expected}")]
    Shape {
        /// The scheme.
        scheme: String,
        /// What it has, as the end of the sentence "a URL of the scheme …".
        expected: &'static str,
    },
    /// An option name that is none. It is not repeated here: it may be a part of a password.
    #[error(
        "option {position} of the URL has no valid name: write options as `?ttl=30s&prefix=app:`, and in a password `?` as `%3F` and `&` as `%26`"
    )]
    BadOptionName {
        /// Which one, from 1.
        position: usize,
    },
    /// An option without `=`.
    #[error("the option `{option}` has no value: write `{option}=...`")]
    NoValue {
        /// The option.
        option: String,
    },
    /// An option that is there twice.
    #[error("the option `{option}` is given twice: leave one of them out")]
    Repeated {
        /// The option.
        option: String,
    },
    /// An option that the store does not have.
    #[error("the scheme `{scheme}` has no option `{option}`{}: its options are {}", did_you_mean(*.nearest), list(.known))]
    UnknownOption {
        /// The scheme.
        scheme: String,
        /// The option.
        option: String,
        /// All options of the scheme.
        known: Vec<&'static str>,
        /// The one that was probably meant.
        nearest: Option<&'static str>,
    },
    /// A value that does not fit its option.
    #[error("the option `{option}` cannot be `{value}`: {expected}")]
    BadValue {
        /// The option.
        option: &'static str,
        /// The value, cut if it is long.
        value: String,
        /// What to write.
        expected: String,
    },
}

impl InvalidUrl {
    /// An unknown scheme, with the one that was probably meant.
    #[must_use]
    pub fn unknown_scheme(scheme: &str, known: &[&'static str]) -> Self {
        Self::UnknownScheme {
            scheme: scheme.to_owned(),
            known: known.to_vec(),
            nearest: super::nearest::nearest(scheme, known.iter().copied()),
        }
    }

    /// A value that does not fit.
    #[must_use]
    pub fn bad_value(option: &'static str, value: &str, expected: impl Into<String>) -> Self {
        let mut shown: String = value
            .chars()
            .take(40)
            .flat_map(char::escape_debug)
            .collect();
        if value.chars().nth(40).is_some() {
            shown.push_str("...");
        }
        Self::BadValue {
            option,
            value: shown,
            expected: expected.into(),
        }
    }
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |word| format!(" (did you mean `{word}`?)"))
}

fn list(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}
