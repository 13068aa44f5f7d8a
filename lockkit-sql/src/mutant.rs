//! Promises broken on purpose, so that the suite can be tested.

/// Names a promise that the store breaks: a fault that a real store has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SqlMutant {
    /// A release ends the hold on its name, whoever has it.
    ReleaseWithoutOwnerCheck,
    /// A renewal that finds the lease ended sets it anew.
    RenewalRecreates,
    /// A renewal that asks for less makes a lease shorter.
    RenewalShortens,
    /// A renewal waits for a row that somebody has locked.
    RenewalWaits,
    /// The token is a bare counter.
    BareCounter,
    /// A new hold has the token of the hold before it.
    TokenOfLastHolderRepeated,
    /// The repeated attempt of a holder gives it a new token.
    TokenRaisedOnRepeat,
    /// A release tells nobody.
    WakeUpLost,
    /// The lease of a held lock is not looked at.
    LeaseNeverEnds,
    /// The token of a pinned hold is made in the transaction that pins it.
    TokenRaisedInsidePin,
    /// A prefix is read as a pattern.
    PrefixIsPattern,
}

impl SqlMutant {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::ReleaseWithoutOwnerCheck,
        Self::RenewalRecreates,
        Self::RenewalShortens,
        Self::RenewalWaits,
        Self::BareCounter,
        Self::TokenOfLastHolderRepeated,
        Self::TokenRaisedOnRepeat,
        Self::WakeUpLost,
        Self::LeaseNeverEnds,
        Self::TokenRaisedInsidePin,
        Self::PrefixIsPattern,
    ];
}
