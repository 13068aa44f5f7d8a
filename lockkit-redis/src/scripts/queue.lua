-- Decides which ticket is next, and gives it the lock. Acquire, release, inspect and break follow it.
--
-- KEYS[1] the lock     hash    holder -> token; its time to live is the lease
-- KEYS[2] the token    string  the last token given
-- KEYS[3] the queue    list    the tickets, in their order
-- KEYS[4] the waiters  hash    ticket -> "<deadline us> <window ms> <ttl ms> <attempt> <channel>"
-- KEYS[5] a tombstone  string  of the ticket in ARGV[2]
-- ARGV[1] how long a token is kept, in ms; 0: without an expiry
-- ARGV[2] the ticket; empty for break
local LOCK, TOKEN, QUEUE, WAITERS, TOMBSTONE = unpack(KEYS)
local TOKEN_TTL, ME = tonumber(ARGV[1]), ARGV[2]

local clock
-- The server's clock in microseconds, read once, so that a step has one time.
local function now()
  if not clock then
    local time = redis.call('TIME')
    clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
  end
  return clock
end

-- Makes `ticket` the holder for `ttl` ms and returns its token.
-- Writes the token first: if it must not write the token key, no hold may stay behind.
local function take(ticket, ttl)
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
  -- A token without an expiry was made so on purpose, perhaps by another program; it keeps none.
  if TOKEN_TTL == 0 or last and redis.call('PTTL', TOKEN) == -1 then
    redis.call('SET', TOKEN, text)
  else
    redis.call('SET', TOKEN, text, 'PX', TOKEN_TTL)
  end
  redis.call('HSET', LOCK, ticket, text)
  local ends = redis.pcall('PEXPIRE', LOCK, ttl)
  if type(ends) == 'table' then
    -- A hold without an expiry must not stay behind.
    redis.call('DEL', LOCK)
    error(ends['err'])
  end
  return text
end

-- Removes a waiter. Each ticket in the queue is a waiter, and is there once.
local function leave(ticket)
  redis.call('HDEL', WAITERS, ticket)
  redis.call('LREM', QUEUE, '1', ticket)
end

-- Returns the first live waiter with its window, attempt and channel, and removes the dead before it.
-- `asker` is alive, even if its heartbeat is late.
local function head(asker)
  while true do
    local ticket = redis.call('LINDEX', QUEUE, '0')
    if not ticket then return nil end
    local waiter = redis.call('HGET', WAITERS, ticket) or ''
    local deadline, window, attempt, channel = string.match(waiter, '^(%d+) (%d+) %d+ (%d+) (.*)$')
    if ticket == asker or deadline and tonumber(deadline) >= now() then
      return ticket, window, attempt, channel
    end
    leave(ticket)
  end
end

-- Gives the free lock to a waiter for its window, and notifies it. If the waiter is dead, this costs
-- the others one window and not a whole lease. The message has the number of the waiter's last attempt,
-- so that the waiter recognises a late message about a grant that has ended.
local function grant(ticket, window, attempt, channel)
  local token = take(ticket, window)
  leave(ticket)
  if channel ~= '' then
    -- It may be forbidden: then the waiter finds its hold with its next heartbeat.
    redis.pcall('PUBLISH', channel, ticket .. ' ' .. token .. ' ' .. window .. ' ' .. attempt .. ' ' .. LOCK)
  end
end
