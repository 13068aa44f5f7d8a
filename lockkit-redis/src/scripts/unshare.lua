-- Ends the hold of a ticket that is not exclusive, or takes it out of the queue, and passes the lock on.
--
-- KEYS as in queue.lua
-- ARGV as in release.lua, and
-- ARGV[7] the channel that waiters of Redisson's readers-writer locks subscribe
-- returns 1 if the ticket held, else 0
local CHANNEL, REFUSE, CLUSTERED, RW_CHANNEL = ARGV[4], ARGV[5], ARGV[6], ARGV[7]

-- 1. Only its own hold, and only one whose lease lasts. Once a hold has ended, nothing in this step may fail any more.
local others, exclusive = holders()
local held = type(redis.pcall('HGET', LOCK, ME)) == 'string'
if held then
  local ok, failure = pcall(unshare, ME)
  if not ok and type(redis.pcall('HGET', LOCK, ME)) == 'string' then error(failure) end
  ok, others, exclusive = pcall(holders)
  if not ok then others, exclusive = 0, true end
end

-- 2. First, as this write needs no memory.
if not held then leave(ME) end
-- An attempt that arrives later must not become a hold without an owner.
local call = held and redis.pcall or redis.call
if REFUSE ~= '0' then call('SET', TOMBSTONE, '', 'PX', REFUSE) end

-- 3. As after the release of an exclusive hold, but others may still hold.
pcall(pass_on, others, exclusive)
if held and redis.pcall('EXISTS', LOCK) == 0 then
  announce(CHANNEL, '0', CLUSTERED)
  announce(RW_CHANNEL, '1', CLUSTERED)
end
return held and 1 or 0
