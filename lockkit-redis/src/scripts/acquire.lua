-- Takes the lock for a ticket, or gives it a place in the queue.
--
-- KEYS as in queue.lua
-- ARGV[1] to ARGV[3] as in queue.lua
-- ARGV[4] ttl in ms
-- ARGV[5] when it enqueues: 0 never, 1 if the lock is held, 2 if it is held and others queue or share it
-- ARGV[6] its window in ms: how long its place lasts without a heartbeat
-- ARGV[7] the number of this attempt, which grows
-- ARGV[8] its channel; empty if it polls
-- ARGV[9] its mode and label
-- returns {1, token}          it holds
--         {0, ms or -1}       held by another, for at most this long
--         {-1}                the ticket was released before
--         {-2, type}          the key is not a lock
local TTL, ENQUEUE, WINDOW, ATTEMPT, CHANNEL, WHO = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]

-- 1. A repeated attempt, or a grant whose message was lost: the lease starts again, the token stays.
--    A late attempt never makes a lease shorter.
local own = redis.pcall('HGET', LOCK, ME)
if type(own) == 'string' then
  -- Written in any case: replicas acknowledge what is written.
  redis.call('PEXPIRE', LOCK, math.max(redis.call('PTTL', LOCK), tonumber(TTL)))
  leave(ME)
  return {1, token_of(own)}
end

-- 2. A late attempt of a released ticket.
if redis.call('EXISTS', TOMBSTONE) == 1 then return {-1} end

-- 3. A key of another program: a string is a lock of the SET NX family, which means "held".
if type(own) == 'table' then
  local kind = redis.call('TYPE', LOCK)['ok']
  if kind ~= 'string' then return {-2, kind} end
end

-- 4. Free: for this ticket if it is the first, else for the first waiter. A newcomer never overtakes.
local left = redis.call('PTTL', LOCK)
if left == -2 then
  if refusal() then return refusal() end
  local first = head(ME)
  if not first or first == ME then
    -- Before the hold: nothing may fail after it.
    if first then leave(ME) end
    return {1, take(ME, TTL, WHO)}
  end
  -- What a lock left behind that was deleted by hand.
  redis.call('DEL', SHARES)
  pass_on(0, false, ME)
  left = redis.call('PTTL', LOCK)
elseif left == -1 and kind() == 'hash' then
  -- Locks have an expiry. This hash belongs to an application, and would never become free.
  return {-2, 'hash'}
end

-- 5. Held: the ticket takes a place, or keeps its place with a new heartbeat.
local joins = ENQUEUE == '1' or ENQUEUE == '2' and (head(ME) or redis.pcall('HGET', LOCK, 'mode') == 'lockkit')
if joins then join(TTL, WINDOW, ATTEMPT, CHANNEL, WHO) end
return {0, left}
