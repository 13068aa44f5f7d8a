//! Promises broken on purpose, so that the suite can be tested.

/// Names a promise that the store breaks.
///
/// Each is a fault that a real store has had; a named conformance case must catch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    not(feature = "mutants"),
    expect(unreachable_pub, reason = "public with the feature only")
)]
pub enum StoreMutant {
    /// A release ends the hold on its name, also another ticket's.
    ReleaseWithoutOwnerCheck,
    /// A renewal that finds the lock free makes a hold.
    RenewalRecreates,
    /// A lock that becomes free is passed to no waiter, and none is woken.
    WakeUpLost,
    /// The repeated attempt of a waiter never finds the lock: only wake-ups serve it.
    RecheckFindsNothing,
    /// Wake-ups that come before the watch is opened are dropped.
    EarlyPushDropped,
    /// The token counter begins again after a wipe.
    CounterRestartsAfterWipe,
    /// The repeated attempt of a holder gives it a new token.
    TokenRaisedOnRepeat,
    /// A pushed grant lasts for the whole lease, also when its waiter is dead.
    PushedGrantKeepsFullTtl,
    /// A place in the queue lasts for ever without a heartbeat.
    QueueEntryWithoutHeartbeat,
    /// A ticket that is withdrawn before it knew of its grant passes the lock to no waiter.
    WithdrawalWakesNobody,
    /// A late attempt of a released ticket becomes a hold.
    GhostAfterRelease,
    /// A new hold has the token of the hold before it.
    TokenOfLastHolderRepeated,
    /// A mere try takes a place in the queue.
    TryLeavesQueueEntry,
    /// A renewal or a repeated attempt that asks for less makes the lease shorter.
    LeaseShortened,
    /// The waiters of a session that ended keep their places and are granted the lock.
    GrantToExpiredSession,
}

#[cfg(feature = "mutants")]
impl StoreMutant {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 15] = [
        Self::ReleaseWithoutOwnerCheck,
        Self::RenewalRecreates,
        Self::WakeUpLost,
        Self::RecheckFindsNothing,
        Self::EarlyPushDropped,
        Self::CounterRestartsAfterWipe,
        Self::TokenRaisedOnRepeat,
        Self::PushedGrantKeepsFullTtl,
        Self::QueueEntryWithoutHeartbeat,
        Self::WithdrawalWakesNobody,
        Self::GhostAfterRelease,
        Self::TokenOfLastHolderRepeated,
        Self::TryLeavesQueueEntry,
        Self::LeaseShortened,
        Self::GrantToExpiredSession,
    ];
}
