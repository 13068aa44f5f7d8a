//! What can be wrong with a URL, and what to do about it.

/// Says why a URL cannot be used, and what to write instead.
///
/// No message holds a password, or a user, a host or a path of the URL; but what stands before the first `:` is taken
/// for a scheme and shown, also where the scheme was left out. INV-14.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidUrl(String);

impl InvalidUrl {
    /// With the sentence that it is told in.
    #[must_use]
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// An unknown scheme, with the one that was probably meant.
    #[must_use]
    pub fn unknown_scheme(scheme: &str, known: &[&'static str]) -> Self {
        let (meant, known) = (did_you_mean(scheme, known), list(known));
        Self(format!(
            "no store has the scheme `{scheme}`{meant}: the schemes are {known}"
        ))
    }

    /// A scheme whose store, or whose TLS, was not built in.
    #[must_use]
    pub fn feature_off(scheme: &str, feature: &str) -> Self {
        Self(format!(
            "the scheme `{scheme}` needs the feature `{feature}` of the crate `lockkit`: enable it in \
             Cargo.toml"
        ))
    }

    /// Hosts, a user or a path where the store has no use for them, or the lack of them. `expected` is what
    /// it has, as the end of the sentence "a URL of the scheme `x` ...".
    #[must_use]
    pub fn shape(scheme: &str, expected: &str) -> Self {
        Self(format!("a URL of the scheme `{scheme}` {expected}"))
    }

    /// An option that the store does not have.
    pub(super) fn unknown_option(scheme: &str, option: &str, known: &[&'static str]) -> Self {
        let (meant, known) = (did_you_mean(option, known), list(known));
        Self(format!(
            "the scheme `{scheme}` has no option `{option}`{meant}: its options are {known}"
        ))
    }

    pub(super) fn repeated(option: &str) -> Self {
        Self(format!(
            "the option `{option}` is given twice: leave one of them out"
        ))
    }

    pub(super) fn bad_escape(part: &str) -> Self {
        Self(format!(
            "the {part} of the URL has a `%` that no two hexadecimal digits follow, or is no UTF-8 text: \
             write `%` itself as `%25`"
        ))
    }

    /// A value that does not fit; `expected` is what to write.
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
        let expected = expected.into();
        Self(format!(
            "the option `{option}` cannot be `{shown}`: {expected}"
        ))
    }
}

/// The word of `known` that `given` is a misspelling of: at most two letters away, and no more than
/// a third of its length.
fn did_you_mean(given: &str, known: &[&str]) -> String {
    let given = given.to_ascii_lowercase();
    let words = known.iter();
    let near = words
        .map(|word| (strsim::osa_distance(&given, word), word))
        .filter(|(distance, word)| *distance <= 2 && distance * 3 <= word.len())
        .min_by_key(|(distance, _)| *distance);
    near.map_or_else(String::new, |(_, word)| {
        format!(" (did you mean `{word}`?)")
    })
}

fn list(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}
