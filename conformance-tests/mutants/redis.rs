//! The mutants of the scripts in Redis: what to write in place of what.

pub(crate) const CHANGES: &[(&str, &str, &str)] = &[
    (
        "redis::ReleaseWithoutOwnerCheck",
        "local held = type(redis.pcall('HGET', LOCK, ME)) == 'string'",
        "local held = redis.call('EXISTS', LOCK) == 1",
    ),
    (
        "redis::RenewalRecreates",
        "    replies[i] = 0",
        "    redis.call('HSET', lock, ARGV[2 * i], '1')
    redis.call('PEXPIRE', lock, ARGV[2 * i + 1])
    replies[i] = 1",
    ),
    (
        "redis::RenewalShortens",
        "if redis.call('PTTL', lock) < ttl then",
        "if true then",
    ),
    (
        "redis::WakeUpLost",
        "pcall(grant, first, window, attempt, channel)",
        "local _",
    ),
    (
        "redis::RecheckFindsNothing",
        "if type(own) == 'string' then\n",
        "if type(own) == 'string' then\n  if true then return {0, -1} end\n",
    ),
    (
        "redis::BareCounter",
        "local token = now()",
        "local token = 1",
    ),
    (
        "redis::TokenOfLastHolderRepeated",
        "if last >= token then token = last + 1 end",
        "token = last",
    ),
    (
        "redis::TokenRaisedOnRepeat",
        "return {1, own}",
        "return {1, take(ME, TTL)}",
    ),
    (
        "redis::PushedGrantKeepsFullTtl",
        "'^(%d+) (%d+) %d+ (%d+) (.*)$'",
        "'^(%d+) %d+ (%d+) (%d+) (.*)$'",
    ),
    (
        "redis::QueueEntryWithoutHeartbeat",
        "deadline and tonumber(deadline) >= now()",
        "deadline",
    ),
    (
        "redis::TryLeavesQueueEntry",
        "if ENQUEUE == '0' or",
        "if false or",
    ),
    (
        "redis::GhostOfLateRequest",
        "if redis.call('EXISTS', TOMBSTONE) == 1 then return {-1} end",
        "",
    ),
];
