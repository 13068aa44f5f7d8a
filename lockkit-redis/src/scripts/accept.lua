-- Takes the lock on one node of several for a ticket, and accepts a token for it if that is larger than all before.
-- Follows queue.lua and kind.lua.
--
-- KEYS as in queue.lua
-- ARGV[1] to ARGV[3] as in queue.lua
-- ARGV[4] ttl in ms
-- ARGV[5] the proposed token
-- ARGV[6] 1 if it is also for a ticket that holds, else 0
-- ARGV[7] its mode and label
-- returns {1, token, last, clock us}      it holds with this token, or 0 if none was accepted for it
--         {0, ms or -1, last, clock us}   held by another, for at most this long
--         {-1}                            the ticket was released before
--         {-2, type}                      the key is not a lock
local TTL, PROPOSED, RAISE, WHO = ARGV[4], ARGV[5], ARGV[6], ARGV[7]

if refusal() then return refusal() end

-- 1. The last token accepted here. On a new name it is one that no client proposes any more, so that clocks that
--    differ a little cost no second attempt.
local stored = redis.call('GET', TOKEN)
local last = now() - 1000000
if stored then
  last = assert(tonumber(stored), 'lockkit: the token key does not hold a number')
  -- Lua's numbers are exact up to 9e15. No reply tells of a token that leaves no room: it raises those of all names.
  assert(last < 8000000000000000, 'lockkit: the token key holds too large a number')
end

local function reply(code, value)
  return {code, value, string.format('%.0f', last), string.format('%.0f', now())}
end

-- 2. Never one that was accepted before: two tickets with one token, or a token that falls, would need it.
local function accept()
  local token = assert(tonumber(PROPOSED))
  if token <= last then return '0' end
  write_token(PROPOSED, stored)
  last = token
  return PROPOSED
end

-- 3. Free. The token is written before the hold: if it must not be written, no hold may stay behind.
if redis.call('EXISTS', LOCK, TOMBSTONE) == 0 then
  local token = accept()
  hold(ME, TTL, token, WHO)
  return reply(1, token)
end

-- 4. A repeated attempt keeps its token, unless too few nodes have accepted it.
local own = redis.pcall('HGET', LOCK, ME)
if type(own) == 'string' then
  if redis.call('PTTL', LOCK) < tonumber(TTL) then redis.call('PEXPIRE', LOCK, TTL) end
  local token = token_of(own)
  if RAISE == '1' then
    local raised = accept()
    if raised ~= '0' then
      token = raised
      redis.call('HSET', LOCK, ME, token .. ' ' .. WHO)
    end
  end
  return reply(1, token)
end

-- 5. A late attempt of a released ticket.
if redis.call('EXISTS', TOMBSTONE) == 1 then return {-1} end

-- 6. Held, perhaps by another program: a string is a lock of the SET NX family.
local left, found = redis.call('PTTL', LOCK), redis.call('TYPE', LOCK)['ok']
if found ~= 'string' and (found ~= 'hash' or left == -1 and kind() == 'hash') then return {-2, found} end
return reply(0, left)
