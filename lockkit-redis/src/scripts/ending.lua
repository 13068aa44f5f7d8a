-- How an exclusive hold ends. Follows queue.lua.
--
-- ARGV[1] to ARGV[6] as in release.lua
local CHANNEL, REFUSE, CLUSTERED = ARGV[4], ARGV[5], ARGV[6]

-- Ends the hold of the ticket, and returns whether it held.
local function end_hold()
  local held = type(redis.pcall('HGET', LOCK, ME)) == 'string'
  -- With the shares that a lock left behind which was deleted by hand: they would count beside the next ones.
  -- A holder has no place in the queue. First, as these writes need no memory.
  if held then redis.call('DEL', LOCK, SHARES) else leave(ME) end
  -- An attempt that arrives later must not become a hold without an owner.
  -- Once a hold has ended, nothing in this step may fail any more.
  local call = held and redis.pcall or redis.call
  if REFUSE ~= '0' then call('SET', TOMBSTONE, '', 'PX', REFUSE) end
  return held
end

-- Makes the next waiter the holder, and all behind it that share with it. It may fail if the server has no memory:
-- the lock is free then, and waiters find it with their heartbeats.
local function pass_on_after(held)
  if not held then
    pcall(pass_on, holders())
    return
  end
  local ok, others = pcall(pass_on, 0, false)
  if not (ok and others > 0) then announce(CHANNEL, '0', CLUSTERED) end
end
