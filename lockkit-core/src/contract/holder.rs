//! Who holds: the identity that a store sees.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// Identifies one client of a store, at random, for its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(Uuid);

impl ClientId {
    /// Draws a new identity from the operating system's random numbers.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// Identifies one hold in a store, written `{client}:{n}`, and is never used for another.
///
/// A release that arrives late therefore never ends another hold, not even a later one of
/// the same client. INV-3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HolderId {
    client: ClientId,
    n: u64,
}

impl HolderId {
    /// Names the `n`th ticket of `client`.
    #[must_use]
    pub const fn new(client: ClientId, n: u64) -> Self {
        Self { client, n }
    }

    /// The client it belongs to.
    #[must_use]
    pub const fn client(self) -> ClientId {
        self.client
    }

    /// Its number within the client.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.n
    }
}

impl fmt::Display for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client, self.n)
    }
}

impl FromStr for HolderId {
    type Err = InvalidHolderId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (client, n) = text.split_once(':').ok_or(InvalidHolderId)?;
        // `u64::from_str` takes a leading `+`, which we never write.
        if !n.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(InvalidHolderId);
        }
        let client = Uuid::try_parse(client).map_err(|_| InvalidHolderId)?;
        Ok(Self {
            client: ClientId(client),
            n: n.parse().map_err(|_| InvalidHolderId)?,
        })
    }
}

/// Says that a text is not a [`HolderId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a holder of the form `<uuid>:<number>`")]
#[non_exhaustive]
pub struct InvalidHolderId;
