//! Names of locks. How a store writes a name into its own key space is that store's affair.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Names a lock: any UTF-8 text of 1 to 512 bytes without a NUL byte.
///
/// Every store accepts every such name, except that Redis Cluster refuses empty and unpaired braces. A store keeps
/// different names apart and never lets one name reach the keys of another: `a`, `a/b`, `../a`, `{a}` and `A` are five
/// unrelated locks everywhere.
///
/// # Cost
/// Cloning counts a reference; nothing is copied.
///
/// # Units and shapes
/// With the feature `serde` it is a text, which is checked when it is read.
///
/// # Examples
/// ```
/// use lockkit_core::LockName;
///
/// assert_eq!(LockName::new("orders/42")?.as_str(), "orders/42");
/// assert!(LockName::new("").is_err());
/// # Ok::<(), lockkit_core::InvalidName>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct LockName(Arc<str>);

impl LockName {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 512;

    /// Checks a name.
    ///
    /// # Errors
    /// - [`InvalidName`] if the text is empty, longer than [`Self::MAX_LEN`] bytes or has a NUL byte.
    pub fn new(name: impl Into<Arc<str>>) -> Result<Self, InvalidName> {
        let name = name.into();
        if name.is_empty() {
            return Err(InvalidName::Empty);
        }
        if name.len() > Self::MAX_LEN {
            return Err(InvalidName::TooLong { len: name.len() });
        }
        if name.contains('\0') {
            return Err(InvalidName::Nul);
        }
        Ok(Self(name))
    }

    /// The name as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for LockName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

impl TryFrom<String> for LockName {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

impl From<LockName> for String {
    fn from(name: LockName) -> Self {
        name.as_str().to_owned()
    }
}

/// Says why a text cannot name a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidName {
    /// The text is empty.
    #[error("a lock name must not be empty")]
    Empty,
    /// The text is too long.
    #[error(
        "a lock name has at most 512 bytes, this one has {len}: shorten it or use a hash of it"
    )]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The text holds a NUL byte.
    #[error("a lock name must not contain a NUL byte")]
    Nul,
}
