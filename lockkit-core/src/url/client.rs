//! The options that every store has, because the client obeys them.

use std::time::Duration;

use super::invalid::InvalidUrl;
use super::options::Options;

/// The options that are the same for all stores: `ttl`, `label`, `prefix`, `timeout`, `outage`, `max_hold`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The lease of holds, or of the session where the store has one.
    pub ttl: Option<Duration>,
    /// What operators read of the client's holds.
    pub label: Option<String>,
    /// The prefix of every name.
    pub prefix: Option<String>,
    /// The longest that one request may take.
    pub timeout: Option<Duration>,
    /// How long an acquire without a limit puts up with a store that fails.
    pub outage: Option<Duration>,
    /// The longest hold.
    pub max_hold: Option<Duration>,
}

impl ClientOptions {
    /// The value of `outage` if it is not given.
    pub const DEFAULT_OUTAGE: Duration = Duration::from_secs(30);

    /// Takes them out of the options of a URL.
    ///
    /// # Errors
    /// - [`InvalidUrl`] if one is not a duration, or a duration of zero.
    pub fn take(options: &mut Options) -> Result<Self, InvalidUrl> {
        Ok(Self {
            ttl: options.positive_duration("ttl")?,
            label: options.text("label"),
            prefix: options.text("prefix").filter(|prefix| !prefix.is_empty()),
            timeout: options.positive_duration("timeout")?,
            outage: options.duration("outage")?,
            max_hold: options.positive_duration("max_hold")?,
        })
    }
}
