-- Takes the lock for a ticket that is not exclusive, or gives it a place in the queue.
--
-- KEYS as in queue.lua
-- ARGV[1] to ARGV[3] as in queue.lua
-- ARGV[4] to ARGV[9] as in acquire.lua, but ARGV[5] is 0 or 1
-- returns as acquire
local TTL, ENQUEUE, WINDOW, ATTEMPT, CHANNEL, WHO = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]

-- 1. The shares whose leases have ended are no holds, perhaps also that of this ticket.
local others, exclusive = holders()

-- 2. A repeated attempt, or a grant whose message was lost: the lease starts again, the token stays.
local own = redis.pcall('HGET', LOCK, ME)
if type(own) == 'string' then
  -- If the shares were lost, as by eviction, it would be the only one that counts.
  if not redis.call('ZSCORE', SHARES, ME) then return {0, redis.call('PTTL', LOCK)} end
  prolong(ME, TTL)
  leave(ME)
  return {1, token_of(own)}
end

-- 3. A late attempt of a released ticket.
if redis.call('EXISTS', TOMBSTONE) == 1 then return {-1} end

-- 4. A key of another program: a string is a lock of the SET NX family, which means "held".
local left = redis.call('PTTL', LOCK)
local found = left == -1 and kind() or type(own) == 'table' and redis.call('TYPE', LOCK)['ok'] or 'lock'
if found ~= 'lock' and found ~= 'string' then return {-2, found} end

-- 5. Those before it come first; then it is let in if it fits, and those behind it that fit too.
others, exclusive = pass_on(others, exclusive, ME)
local first = head(ME)
if (not first or first == ME) and fits(WHO, others, exclusive) then
  if refusal() then return refusal() end
  -- Before the hold: nothing may fail after it.
  if first then leave(ME) end
  local token = share(ME, TTL, WHO)
  pcall(pass_on, others + 1, mode_of(WHO) == 'w')
  return {1, token}
end

-- 6. Held.
if ENQUEUE == '1' then join(TTL, WINDOW, ATTEMPT, CHANNEL, WHO) end
return {0, redis.call('PTTL', LOCK)}
