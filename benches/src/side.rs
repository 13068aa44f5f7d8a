//! The two sides of a comparison.

/// One of the two sides of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Side {
    /// The lock of this library.
    Lock,
    /// The store's own operations.
    Bare,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Lock, Self::Bare];
}
