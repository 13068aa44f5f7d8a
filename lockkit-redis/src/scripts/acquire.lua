-- Takes the lock for a ticket, or gives it a place in the queue.
--
-- KEYS as in queue.lua
-- ARGV[1] ARGV[2] as in queue.lua
-- ARGV[3] ttl in ms
-- ARGV[4] when it enqueues: 0 never, 1 if the lock is held, 2 if it is held and others queue
-- ARGV[5] its window in ms: so long its place lasts without a heartbeat
-- ARGV[6] the number of this attempt, which grows
-- ARGV[7] its channel; empty if it hears nothing
-- returns {1, token}          it holds
--         {0, ms or -1, n}    held by others, for so long at most; n waiters before it, -1 if not queued
--         {-1}                the ticket was released before
--         {-2, type}          the key is none of a lock
local TTL, ENQUEUE, WINDOW, BEAT, CHANNEL = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]

-- 1. A repeated attempt, or a grant whose message was lost: the lease begins anew, the token stays.
local own = redis.pcall('HGET', LOCK, ME)
if type(own) == 'string' then
  redis.call('PEXPIRE', LOCK, TTL)
  leave(ME)
  return {1, own}
end

-- 2. A late request of a ticket that was withdrawn.
if redis.call('EXISTS', TOMBSTONE) == 1 then return {-1} end

-- 3. Somebody else's key: a string is a lock of the SET NX family, which simply means "held".
if type(own) == 'table' then
  local kind = redis.call('TYPE', LOCK)['ok']
  if kind ~= 'string' then return {-2, kind} end
end

-- 4. Free: for me if nobody stands before me, else for the one who does. A newcomer never overtakes.
local left = redis.call('PTTL', LOCK)
if left == -2 then
  local first, window, beat, channel = head()
  if not first or first == ME then
    local token = take(ME, TTL)
    if first then leave(ME) end
    return {1, token}
  end
  grant(first, window, beat, channel)
  left = redis.call('PTTL', LOCK)
end

-- 5. Held: the place is taken, or kept, with a new heartbeat.
if ENQUEUE == '0' or (ENQUEUE == '2' and not head()) then return {0, left, -1} end
local deadline = string.format('%.0f', now() + WINDOW * 1000)
local waiting = table.concat({deadline, WINDOW, TTL, BEAT, CHANNEL}, ' ')
local place = redis.call('HSET', WAITERS, ME, waiting) == 0 and redis.call('LPOS', QUEUE, ME)
if not place then place = redis.call('RPUSH', QUEUE, ME) - 1 end
-- The queue outlives its last heartbeat by a minute or less; it never ends before somebody's window.
local keep = WINDOW + 1000
if place == 0 or redis.call('PTTL', WAITERS) < keep then
  redis.call('PEXPIRE', QUEUE, keep + 60000)
  redis.call('PEXPIRE', WAITERS, keep + 60000)
end
return {0, left, place}
