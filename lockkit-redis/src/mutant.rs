//! Promises broken on purpose, so that the suite can be tested.

use crate::subscriptions::Promises;

/// Names a promise that the store breaks: a fault that a real store has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedisMutant {
    /// A release ends the hold on its name, also that of another ticket.
    ReleaseWithoutOwnerCheck,
    /// A renewal that finds the lock free makes a hold.
    RenewalRecreates,
    /// A late renewal for a shorter lease shortens it.
    RenewalShortens,
    /// A lock that becomes free is not passed on.
    WakeUpLost,
    /// A repeated attempt does not see that its ticket was granted the lock.
    RecheckFindsNothing,
    /// The token is a bare counter.
    BareCounter,
    /// A new hold has the token of the hold before it.
    TokenOfLastHolderRepeated,
    /// The repeated attempt of a holder gives it a new token.
    TokenRaisedOnRepeat,
    /// A pushed grant lasts for the whole lease, also when its waiter is dead.
    PushedGrantKeepsFullTtl,
    /// A place in the queue never ends, even without a heartbeat.
    QueueEntryWithoutHeartbeat,
    /// A try takes a place in the queue.
    TryLeavesQueueEntry,
    /// A grant that arrives before its watch is opened is dropped.
    EarlyPushDropped,
    /// A late attempt of a released ticket becomes a hold, or takes a place.
    GhostOfLateRequest,
    /// A waiter does not try again after the channel of its lock is subscribed.
    NoAttemptAfterSubscribing,
    /// A waiter does not try again after the connection is replaced.
    NoAttemptAfterReconnecting,
}

impl RedisMutant {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::ReleaseWithoutOwnerCheck,
        Self::RenewalRecreates,
        Self::RenewalShortens,
        Self::WakeUpLost,
        Self::RecheckFindsNothing,
        Self::BareCounter,
        Self::TokenOfLastHolderRepeated,
        Self::TokenRaisedOnRepeat,
        Self::PushedGrantKeepsFullTtl,
        Self::QueueEntryWithoutHeartbeat,
        Self::TryLeavesQueueEntry,
        Self::EarlyPushDropped,
        Self::GhostOfLateRequest,
        Self::NoAttemptAfterSubscribing,
        Self::NoAttemptAfterReconnecting,
    ];

    /// The text of the scripts to replace, and its replacement; `None` if the client is broken instead.
    pub(crate) const fn change(self) -> Option<(&'static str, &'static str)> {
        Some(match self {
            Self::ReleaseWithoutOwnerCheck => (
                "local held = type(redis.pcall('HGET', LOCK, ME)) == 'string'",
                "local held = redis.call('EXISTS', LOCK) == 1",
            ),
            Self::RenewalRecreates => (
                "    replies[i] = 0",
                "    redis.call('HSET', lock, ARGV[2 * i], '1')
                 redis.call('PEXPIRE', lock, ARGV[2 * i + 1])
                 replies[i] = 1",
            ),
            Self::RenewalShortens => ("if redis.call('PTTL', lock) < ttl then", "if true then"),
            Self::WakeUpLost => ("pcall(grant, first, window, attempt, channel)", "local _"),
            Self::RecheckFindsNothing => (
                "if type(own) == 'string' then\n",
                "if type(own) == 'string' then\n  if true then return {0, -1} end\n",
            ),
            Self::BareCounter => ("local token = now()", "local token = 1"),
            Self::TokenOfLastHolderRepeated => {
                ("if last >= token then token = last + 1 end", "token = last")
            }
            Self::TokenRaisedOnRepeat => ("return {1, own}", "return {1, take(ME, TTL)}"),
            Self::PushedGrantKeepsFullTtl => (
                "'^(%d+) (%d+) %d+ (%d+) (.*)$'",
                "'^(%d+) %d+ (%d+) (%d+) (.*)$'",
            ),
            Self::QueueEntryWithoutHeartbeat => {
                ("deadline and tonumber(deadline) >= now()", "deadline")
            }
            Self::TryLeavesQueueEntry => ("if ENQUEUE == '0' or", "if false or"),
            Self::GhostOfLateRequest => (
                "if redis.call('EXISTS', TOMBSTONE) == 1 then return {-1} end",
                "",
            ),
            Self::EarlyPushDropped
            | Self::NoAttemptAfterSubscribing
            | Self::NoAttemptAfterReconnecting => return None,
        })
    }

    pub(crate) const fn promises(self) -> Promises {
        Promises {
            keeps_early: !matches!(self, Self::EarlyPushDropped),
            retries_after_subscribing: !matches!(self, Self::NoAttemptAfterSubscribing),
            retries_after_reconnecting: !matches!(self, Self::NoAttemptAfterReconnecting),
        }
    }
}
