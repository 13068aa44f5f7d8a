-- Decides which ticket is next, and gives it the lock. Acquire, release, inspect and break follow it.
--
-- KEYS[1] the lock     hash    holder -> "<token> <who>", and a note on the next line; its time to live is the
--                              lease
-- KEYS[2] the token    string  the last token given
-- KEYS[3] the queue    list    the tickets, in their order
-- KEYS[4] the waiters  hash    ticket -> "<deadline us> <window ms> <ttl ms> <attempt> <channel> <reads>
--                              <who>"
-- KEYS[5] a tombstone  string  of the ticket in ARGV[2]
-- ARGV[1] how long a token is kept, in ms; 0: without an expiry
-- ARGV[2] the ticket; empty for break
-- ARGV[3] the replication id of the primary that the client was admitted to; empty: any; "-": it is not admitted
--         yet, and nothing may be granted
--
-- <reads> is a digest of what the section of a ticket reads, or "-".
-- <who> is the mode and the label of a ticket. The modes are x: exclusive, r: reads, w: writes; a number is that
-- of the permits.
--
-- A lock whose tickets are not exclusive has two things more: a field "mode" in its hash, which is "lockkit" or
-- for a writer "lockkit:write", and
-- SHARES  the shares  sorted set  holder -> the end of its lease in ms
-- The time to live of both is the latest end.
local LOCK, TOKEN, QUEUE, WAITERS, TOMBSTONE = unpack(KEYS)
local TOKEN_TTL, ME, ADMITTED = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local SHARES = 'lockkit_share' .. string.sub(QUEUE, #'lockkit_queue' + 1)

local known, refused = ADMITTED == '', nil
-- Returns the error of a step that would grant the lock here, where its client is not admitted; else nothing.
-- The connection may have lived through two failovers. A step that finds a hold need not ask: that hold is not among
-- the writes that they lost.
local function refusal()
  if not known then
    known = true
    -- The whole name, for `master_replid2` is the former id.
    local id = 'master_replid:' .. ADMITTED
    if ADMITTED == '-' or not string.find(redis.call('INFO', 'replication'), id, 1, true) then
      refused = redis.error_reply('LOCKKITPRIMARY the server has become the primary again, perhaps with lost writes')
    end
  end
  return refused
end

-- What the section of this ticket reads, as a digest. `read` returns it as RESP, or nothing if that fails.
local READS, read = '-', nil

-- The mode of a ticket.
local function mode_of(who)
  return string.match(who, '^%S+')
end

-- The token in the field of a holder.
local function token_of(field)
  return string.match(field, '^%d+')
end

local clock
-- The server's clock in microseconds, read once, so that a step has one time.
local function now()
  if not clock then
    local time = redis.call('TIME')
    clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
  end
  return clock
end

-- Writes the token that is given now; `known` if there was one before.
local function write_token(text, known)
  -- A token without an expiry was made so on purpose, perhaps by another program; it keeps none.
  if TOKEN_TTL == 0 or known and redis.call('PTTL', TOKEN) == -1 then
    redis.call('SET', TOKEN, text)
  else
    redis.call('SET', TOKEN, text, 'PX', TOKEN_TTL)
  end
end

-- Makes the next token. It is written before the hold: if it must not be written, no hold may stay behind.
local function next_token()
  local stored = redis.call('GET', TOKEN)
  local last
  local token = now()
  if stored then
    last = assert(tonumber(stored), 'lockkit: the token key does not hold a number')
    if last >= token then token = last + 1 end
    -- Above this, Lua's numbers are not exact.
    assert(token < 9007199254740992, 'lockkit: the token key holds too large a number')
  end
  local text = string.format('%.0f', token)
  write_token(text, last)
  return text
end

-- Makes `ticket` the only holder for `ttl` ms with a token.
local function hold(ticket, ttl, token, who)
  redis.call('HSET', LOCK, ticket, token .. ' ' .. who)
  local ends = redis.pcall('PEXPIRE', LOCK, ttl)
  if type(ends) == 'table' then
    -- A hold without an expiry must not stay behind.
    redis.call('DEL', LOCK)
    error(ends['err'])
  end
end

-- Makes `ticket` the only holder for `ttl` ms and returns its token.
local function take(ticket, ttl, who)
  local token = next_token()
  hold(ticket, ttl, token, who)
  return token
end

-- Lets the lock and its shares live until the latest end of a share.
local function live_until_the_latest_end()
  local ends = redis.call('ZREVRANGE', SHARES, '0', '0', 'WITHSCORES')[2]
  redis.call('PEXPIREAT', LOCK, ends)
  redis.call('PEXPIREAT', SHARES, ends)
end

-- Starts the lease of a share again, but makes it no shorter.
local function prolong(ticket, ttl)
  local ends = math.floor(now() / 1000) + tonumber(ttl)
  local before = tonumber(redis.call('ZSCORE', SHARES, ticket) or '0')
  if before < ends then redis.call('ZADD', SHARES, string.format('%.0f', ends), ticket) end
  live_until_the_latest_end()
end

-- Ends the hold of a ticket that has a share.
local function unshare(ticket)
  redis.call('HDEL', LOCK, ticket)
  redis.call('ZREM', SHARES, ticket)
  if redis.call('ZCARD', SHARES) > 0 then
    live_until_the_latest_end()
  elseif redis.call('HLEN', LOCK) <= 1 then
    -- Holders whose shares were lost, as by eviction, hold until the lock's own end.
    redis.call('DEL', LOCK, SHARES)
  end
end

-- Makes `ticket` a holder for `ttl` ms, beside the others, and returns its token.
local function share(ticket, ttl, who)
  local token = next_token()
  redis.call('HSET', LOCK, ticket, token .. ' ' .. who, 'mode', mode_of(who) == 'w' and 'lockkit:write' or 'lockkit')
  local ok, failure = pcall(prolong, ticket, ttl)
  if not ok then
    -- A hold without an expiry must not stay behind.
    pcall(unshare, ticket)
    if redis.call('PTTL', LOCK) == -1 then redis.call('DEL', LOCK) end
    error(failure)
  end
  return token
end

-- Returns how many hold, and whether one of them is exclusive. Ends the shares whose leases have ended.
local function holders()
  local mode = redis.pcall('HGET', LOCK, 'mode')
  if mode ~= 'lockkit' then
    if redis.call('EXISTS', LOCK) == 1 then return 1, true end
    -- What a lock left behind that was deleted by hand.
    redis.call('DEL', SHARES)
    return 0, false
  end
  local ended = redis.call('ZRANGEBYSCORE', SHARES, '-inf', string.format('%.0f', math.floor(now() / 1000)))
  for _, ticket in ipairs(ended) do unshare(ticket) end
  local count = redis.call('ZCARD', SHARES)
  -- A lock whose shares were lost, as by eviction, is held until its own end.
  return count, count == 0 and redis.call('EXISTS', LOCK) == 1
end

-- Whether a ticket may hold beside `others`. As `Mode::fits`.
local function fits(who, others, exclusive)
  local mode = mode_of(who)
  if exclusive or mode == 'r' then return not exclusive end
  return others < (tonumber(mode) or 1)
end

-- Removes a waiter. Each ticket in the queue is a waiter, and is there once.
local function leave(ticket)
  redis.call('HDEL', WAITERS, ticket)
  redis.call('LREM', QUEUE, '1', ticket)
end

-- Gives this ticket a place in the queue, or keeps its place with a new heartbeat.
local function join(ttl, window, attempt, channel, who)
  -- If one half of the queue is lost, as by eviction, all waiters join again.
  if redis.call('EXISTS', QUEUE, WAITERS) == 1 then redis.call('DEL', QUEUE, WAITERS) end
  local deadline = string.format('%.0f', now() + window * 1000)
  local waiting = table.concat({deadline, window, ttl, attempt, channel, READS, who}, ' ')
  if redis.call('HSET', WAITERS, ME, waiting) == 1 then redis.call('RPUSH', QUEUE, ME) end
  -- The queue outlives its last heartbeat by about a minute, and never ends before a window in it does.
  local keep = window + 1000
  if redis.call('PTTL', WAITERS) < keep then
    redis.call('PEXPIRE', QUEUE, keep + 60000)
    redis.call('PEXPIRE', WAITERS, keep + 60000)
  end
end

-- Returns the first live waiter, with its window, attempt, channel, reads, mode and label, and removes the dead before
-- it.
-- `asker` is alive, even if its heartbeat is late.
local function head(asker)
  while true do
    local ticket = redis.call('LINDEX', QUEUE, '0')
    if not ticket then return nil end
    local waiter = redis.call('HGET', WAITERS, ticket) or ''
    local deadline, window, attempt, channel, reads, who =
      string.match(waiter, '^(%d+) (%d+) %d+ (%d+) (%S*) (%S+) (%S+.*)$')
    if ticket == asker or deadline and tonumber(deadline) >= now() then
      return ticket, window, attempt, channel, reads, who
    end
    leave(ticket)
  end
end

-- Tells those who wait without a place in the queue, as Redisson's waiters, that the lock is free. In a cluster they may
-- listen on the server of its slot alone; servers before Redis 7 do not know that, and refuse it.
local function announce(channel, message, clustered)
  redis.pcall('PUBLISH', channel, message)
  if clustered == '1' then redis.pcall('SPUBLISH', channel, message) end
end

-- Makes a waiter a holder for its window, and notifies it. If the waiter is dead, this costs the others one
-- window and not a whole lease. The message has the number of the waiter's last attempt, so that the waiter
-- recognises a late message about a grant that has ended. If the waiter reads the same as the section of this step, it
-- is told what is read now: never does one user's step run the commands of another.
local function grant(ticket, window, attempt, channel, reads, who)
  local token = (mode_of(who) == 'x' and take or share)(ticket, window, who)
  leave(ticket)
  if channel ~= '' then
    local message = ticket .. ' ' .. token .. ' ' .. window .. ' ' .. attempt .. ' ' .. LOCK
    local found = read and reads == READS and read()
    if found and #found <= 65536 then message = message .. '\0' .. found end
    -- It may be forbidden: then the waiter finds its hold with its next heartbeat.
    redis.pcall('PUBLISH', channel, message)
  end
end

-- Lets in the first waiters, as many as fit beside `others`, but not `asker` and none behind it. Returns
-- how many hold now, and whether one of them is exclusive. Later steps let in those after the first 200.
local function pass_on(others, exclusive, asker)
  for _ = 1, 200 do
    local ticket, window, attempt, channel, reads, who = head(asker)
    if not ticket or ticket == asker or not fits(who, others, exclusive) or refusal() then break end
    grant(ticket, window, attempt, channel, reads, who)
    local mode = mode_of(who)
    others, exclusive = others + 1, mode == 'x' or mode == 'w'
    if exclusive then break end
  end
  return others, exclusive
end
