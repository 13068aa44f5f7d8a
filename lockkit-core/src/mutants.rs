//! Promises of the client broken on purpose, so that the conformance suite can be tested.
//!
//! Without the feature `mutants` nothing here exists at run time and this module is private.

/// A promise that the client breaks.
#[cfg_attr(
    not(feature = "mutants"),
    expect(unreachable_pub, reason = "public with the feature")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutant {
    /// The window of a lease is counted from the reply and not from the request.
    WindowFromReply,
    /// The `since` of a session store is ignored: the window is counted from the attempt.
    LeaseAgeIgnored,
    /// A lost hold comes back when a late renewal is answered.
    LossNotSticky,
    /// `check()` looks at the flag that a timer sets and not at the clock.
    CheckByFlag,
    /// A renewal that failed is not tried again.
    RenewalNotRetried,
    /// The answer to a batch of renewals is waited for without limit, so one bad lock stops all.
    OneBadRenewalStopsAll,
    /// Waiters never repeat their attempt: a lost wake-up is waited for for ever.
    NoRecheck,
    /// The ticket of a cancelled acquire is forgotten and not released.
    CancelLeavesTicket,
    /// The ticket of a lost hold is released when its guard is dropped and not at once.
    LostHoldKeptUntilDrop,
    /// Dropping a guard spawns a task on the current runtime.
    DropSpawns,
    /// Reentry asks the store for a new token.
    ReentryRaisesToken,
    /// Another owner may re-enter.
    AnyOwnerReenters,
    /// A cancelled local waiter keeps the grant that was meant for it.
    CancelledWaiterKeepsTurn,
    /// A failed request is taken as "no effect": an ambiguous release is not repeated.
    AmbiguousReleaseForgotten,
    /// A holder's identity is used again by its next hold.
    HolderReused,
    /// The wake-ups of a hold are not watched, so that the client notices a loss late.
    LossNotWatched,
}

#[cfg(feature = "mutants")]
impl Mutant {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 16] = [
        Self::WindowFromReply,
        Self::LeaseAgeIgnored,
        Self::LossNotSticky,
        Self::CheckByFlag,
        Self::RenewalNotRetried,
        Self::OneBadRenewalStopsAll,
        Self::NoRecheck,
        Self::CancelLeavesTicket,
        Self::LostHoldKeptUntilDrop,
        Self::DropSpawns,
        Self::ReentryRaisesToken,
        Self::AnyOwnerReenters,
        Self::CancelledWaiterKeepsTurn,
        Self::AmbiguousReleaseForgotten,
        Self::HolderReused,
        Self::LossNotWatched,
    ];
}

/// The promise that one client breaks, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Broken {
    #[cfg(feature = "mutants")]
    pub(crate) promise: Option<Mutant>,
}

impl Broken {
    /// Whether the client breaks this promise; always false without the feature.
    #[cfg(feature = "mutants")]
    pub(crate) fn is(self, mutant: Mutant) -> bool {
        self.promise == Some(mutant)
    }

    #[cfg(not(feature = "mutants"))]
    #[expect(clippy::unused_self, reason = "the feature looks at it")]
    pub(crate) const fn is(self, _: Mutant) -> bool {
        false
    }
}
