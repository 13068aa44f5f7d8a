-- Ends the hold of a ticket, or takes it out of the queue, and passes the lock on.
--
-- KEYS as in queue.lua
-- ARGV[1] to ARGV[3] as in queue.lua
-- ARGV[4] the channel of the lock, which Redisson's waiters subscribe
-- ARGV[5] how long to refuse the ticket from now on, in ms; 0 if all its attempts had a reply
-- ARGV[6] 1 in a cluster
-- returns 1 if the ticket held, else 0
local CHANNEL, REFUSE, CLUSTERED = ARGV[4], ARGV[5], ARGV[6]

-- 1. Only the holder ends a hold.
local held = type(redis.pcall('HGET', LOCK, ME)) == 'string'
if held then redis.call('DEL', LOCK) end

-- 2. An attempt that arrives later must not become a hold without an owner.
--    Once a hold has ended, nothing in this step may fail any more.
local call = held and redis.pcall or redis.call
if REFUSE ~= '0' then call('SET', TOMBSTONE, '', 'PX', REFUSE) end

-- 3. The next waiter becomes the holder in this step, and all behind it that share with it. It may fail if the
--    server has no memory: the lock is free then, and waiters find it with their heartbeats. A holder has no
--    place in the queue.
if not held then
  leave(ME)
  pcall(pass_on, holders())
  return 0
end
local ok, others = pcall(pass_on, 0, false)
if not (ok and others > 0) then announce(CHANNEL, '0', CLUSTERED) end
return 1
