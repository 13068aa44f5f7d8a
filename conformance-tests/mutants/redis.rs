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
        "    redis.call('HSET', lock, ticket, '1')
    redis.call('PEXPIRE', lock, ttl)
    replies[i] = 1",
    ),
    (
        "redis::RenewalShortens",
        "math.max(redis.call('PTTL', lock), ttl)",
        "ttl",
    ),
    (
        "redis::WakeUpLost",
        "pcall(pass_on, 0, false)",
        "true, 1",
    ),
    (
        "redis::NewcomersOvertake",
        "pcall(pass_on, 0, false)",
        "true, 1",
    ),
    (
        "redis::NewcomersOvertake",
        "if not first or first == ME then",
        "if true then",
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
        "return {1, token_of(own)}",
        "return {1, take(ME, TTL, WHO)}",
    ),
    (
        "redis::PushedGrantKeepsFullTtl",
        "'^(%d+) (%d+) %d+ (%d+) (%S*) (%S+) (%S+.*)$'",
        "'^(%d+) %d+ (%d+) (%d+) (%S*) (%S+) (%S+.*)$'",
    ),
    (
        "redis::QueueEntryWithoutHeartbeat",
        "deadline and tonumber(deadline) >= now()",
        "deadline",
    ),
    (
        "redis::TryLeavesQueueEntry",
        "local joins = ENQUEUE == '1' or",
        "local joins = true or",
    ),
    (
        "redis::GhostOfLateRequest",
        "if redis.call('EXISTS', TOMBSTONE) == 1 then return {-1} end",
        "",
    ),
    (
        "redis::ReaderPassesWaitingWriter",
        "if (not first or first == ME) and fits(",
        "if fits(",
    ),
    (
        "redis::OneReaderIsLetIn",
        "for _ = 1, 200 do",
        "for _ = 1, 1 do",
    ),
    (
        "redis::FirstReleaseEndsAll",
        "local ok, failure = pcall(unshare, ME)",
        "local ok, failure = pcall(redis.call, 'DEL', LOCK, SHARES)",
    ),
    (
        "redis::OneMorePermit",
        "return others < (tonumber(mode) or 1)",
        "return others <= (tonumber(mode) or 0)",
    ),
    (
        "redis::EndedHoldRenewed",
        "or ends and ends > now",
        "or ends",
    ),
    (
        "redis::DeadPermitKept",
        "for _, ticket in ipairs(ended) do unshare(ticket) end",
        "",
    ),
    (
        "redis::NoteMakesAHold",
        "if type(own) ~= 'string' then return 0 end",
        "if type(own) ~= 'string' then own = '1 x' end",
    ),
    (
        "redis::TextAdoptedTwice",
        "redis.call('HDEL', LOCK, FROM)\n",
        "",
    ),
    (
        "redis::DowngradeOpensAGap",
        "redis.call('HSET', LOCK, ME, token .. ' ' .. WHO)",
        "redis.call('DEL', LOCK, SHARES) pass_on(0, false) redis.call('HSET', LOCK, ME, token .. ' ' .. WHO)",
    ),
    (
        "redis::CommitWithoutTokenCheck",
        "local valid = type(own) == 'string' and token_of(own) == ARGV[7]",
        "local valid = type(own) == 'string'",
    ),
    (
        "redis::CommitWithoutHold",
        "local replies = held and valid and commands_or_error(first, #ARGV)",
        "local replies = commands_or_error(first, #ARGV)",
    ),
    (
        "redis::FailedCommitKeepsTheHold",
        "local held = end_hold()
local replies = held and valid and commands_or_error(first, #ARGV)",
        "local replies = valid and commands_or_error(first, #ARGV)
if type(replies) == 'string' then return {1, replies} end
local held = end_hold()",
    ),
    (
        "redis::CommitKeepsTheHold",
        "local held = end_hold()
local replies",
        "if valid then return {1, commands_or_error(first, #ARGV)} end
local held = end_hold()
local replies",
    ),
    (
        "redis::FailedReadHidesTheHold",
        "return {1, attempt[2], commands_or_error(10, #ARGV)}",
        "return {1, attempt[2], commands(10, #ARGV)}",
    ),
    (
        "redis::GrantReadsBeforeTheCommit",
        "local held = end_hold()
local replies",
        "local early = commands_or_error(9, first - 1)
local held = end_hold()
local replies",
    ),
    (
        "redis::GrantReadsBeforeTheCommit",
        "local found = commands_or_error(9, first - 1)",
        "local found = early",
    ),
    (
        "redis::GrantReadsForAnySection",
        "read and reads == READS and read()",
        "read and read()",
    ),
    (
        "redis::PassedOnInQuarantine",
        "ADMITTED == '-' or not string",
        "ADMITTED ~= '-' and not string",
    ),
    (
        "redis::AdoptedWithoutAdmission",
        "-- Another ticket may have taken the hold over, in a write that was lost.
if refusal() then return refusal() end",
        "",
    ),
    (
        "redis::FormerIdAccepted",
        "local id = 'master_replid:' .. ADMITTED",
        "local id = ADMITTED",
    ),
    (
        "redis::FailoverUnnoticed",
        "elseif known_run ~= run or known_id ~= id and promoted or EPOCH > epoch then",
        "elseif false then",
    ),
    (
        "redis::StartUnnoticed",
        "since = promoted and now or now - math.max(0, uptime - 1) * 1000",
        "since = 0",
    ),
    (
        "redis::EveryNewIdIsAFailover",
        "known_id ~= id and promoted",
        "known_id ~= id",
    ),
    (
        "redlock::EqualTokenAccepted",
        "if token <= last then return '0' end",
        "if token < last then return '0' end",
    ),
    (
        "redlock::TokenRaisedOnRepeat",
        "if RAISE == '1' then",
        "if true then",
    ),
    (
        "redlock::RaisedBelowLast",
        "    local raised = accept()",
        "    last = tonumber(token)
    local raised = accept()",
    ),
    (
        "redlock::OtherListAccepted",
        "if members and members ~= MEMBERS then",
        "if false then",
    ),
];
