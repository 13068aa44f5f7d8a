//! The promises that a test may break on purpose.

/// What the store does right; all true but in a mutant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Compare the locked file with the one at the path.
    pub(super) compares: bool,
    /// Take the clock as the floor of tokens.
    pub(super) clock_floor: bool,
    /// End only the hold of the ticket that is released.
    pub(super) checks_owner: bool,
    /// Leave the file where it is after a release.
    pub(super) keeps_file: bool,
    /// Refuse a ticket that was released before.
    pub(super) remembers_released: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            compares: true,
            clock_floor: true,
            checks_owner: true,
            keeps_file: true,
            remembers_released: true,
        }
    }
}

/// A promise of the file store, broken on purpose.
#[cfg(feature = "mutants")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileMutant {
    /// A file that is no longer the one at its path counts as the lock: a broken hold goes on.
    NoInodeCompare,
    /// The token is the last one plus one: it starts again after the file was wiped.
    BareCounter,
    /// The release of a ticket that does not hold ends whatever hold there is.
    ReleaseOfAnybody,
    /// A release removes the file, and no attempt compares: two holders of two files.
    UnlinkOnRelease,
    /// The attempt of a released ticket that comes late takes the lock, and no client releases it.
    GhostAfterRelease,
}

#[cfg(feature = "mutants")]
impl FileMutant {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::NoInodeCompare,
        Self::BareCounter,
        Self::ReleaseOfAnybody,
        Self::UnlinkOnRelease,
        Self::GhostAfterRelease,
    ];
}

#[cfg(feature = "mutants")]
impl Rules {
    pub(super) const fn broken(mutant: FileMutant) -> Self {
        Self {
            compares: !matches!(
                mutant,
                FileMutant::NoInodeCompare | FileMutant::UnlinkOnRelease
            ),
            clock_floor: !matches!(mutant, FileMutant::BareCounter),
            checks_owner: !matches!(mutant, FileMutant::ReleaseOfAnybody),
            keeps_file: !matches!(mutant, FileMutant::UnlinkOnRelease),
            remembers_released: !matches!(mutant, FileMutant::GhostAfterRelease),
        }
    }
}
