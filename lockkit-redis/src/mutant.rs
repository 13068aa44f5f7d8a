//! Promises broken on purpose, so that the suite can be tested.

/// Names a promise that the store breaks: a fault that a real store has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedisMutant {
    /// A release ends the hold on its name, whoever has it.
    ReleaseWithoutOwnerCheck,
    /// A renewal that finds the lock free makes a hold.
    RenewalRecreates,
    /// A lock that becomes free is passed to nobody.
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
    /// A place in the queue lasts for ever without a heartbeat.
    QueueEntryWithoutHeartbeat,
    /// A mere try takes a place in the queue.
    TryLeavesQueueEntry,
}

impl RedisMutant {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::ReleaseWithoutOwnerCheck,
        Self::RenewalRecreates,
        Self::WakeUpLost,
        Self::RecheckFindsNothing,
        Self::BareCounter,
        Self::TokenOfLastHolderRepeated,
        Self::TokenRaisedOnRepeat,
        Self::PushedGrantKeepsFullTtl,
        Self::QueueEntryWithoutHeartbeat,
        Self::TryLeavesQueueEntry,
    ];

    /// What to write in place of what in the scripts.
    pub(crate) const fn change(self) -> (&'static str, &'static str) {
        match self {
            Self::ReleaseWithoutOwnerCheck => (
                "local held = type(redis.pcall('HGET', LOCK, ME)) == 'string'",
                "local held = redis.call('EXISTS', LOCK) == 1",
            ),
            Self::RenewalRecreates => (
                "    answers[i] = 0",
                "    redis.call('HSET', lock, ARGV[2 * i], '1')
                 redis.call('PEXPIRE', lock, ARGV[2 * i + 1])
                 answers[i] = 1",
            ),
            Self::WakeUpLost => ("pcall(grant, first, waiter)", "local _"),
            Self::RecheckFindsNothing => (
                "if type(own) == 'string' then\n  redis.call('PEXPIRE'",
                "if type(own) == 'string' then\n  if true then return {0, -1, 0} end\n  redis.call('PEXPIRE'",
            ),
            Self::BareCounter => ("local token = now()", "local token = 1"),
            Self::TokenOfLastHolderRepeated => {
                ("if last >= token then token = last + 1 end", "token = last")
            }
            Self::TokenRaisedOnRepeat => ("return {1, own}", "return {1, take(ME, TTL)}"),
            Self::PushedGrantKeepsFullTtl => (
                "'^%d+ (%d+) %d+ (%d+) (.*)$'",
                "'^%d+ %d+ (%d+) (%d+) (.*)$'",
            ),
            Self::QueueEntryWithoutHeartbeat => {
                ("if deadline and deadline >= now() then", "if deadline then")
            }
            Self::TryLeavesQueueEntry => ("if ENQUEUE == '0' or", "if false or"),
        }
    }
}
