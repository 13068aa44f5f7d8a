-- Ends the hold of any ticket on a lock, and passes the lock on.
--
-- KEYS as in queue.lua
-- ARGV[1] to ARGV[3] as in queue.lua
-- ARGV[4] the channel of the lock, which Redisson's waiters subscribe
-- ARGV[5] 1 in a cluster
-- ARGV[6] the channel that waiters of Redisson's readers-writer locks subscribe
-- returns as inspect: what was there before; only the kind "lock" is ended
local CHANNEL, CLUSTERED, RW_CHANNEL = ARGV[4], ARGV[5], ARGV[6]

-- 1. Only a lock is ended: not a string, and not a hash of an application.
local found = kind()
local before = describe(found)
if found ~= 'lock' and found ~= 'none' then return before end
redis.call('DEL', LOCK, SHARES)

-- 2. As after a release.
local ok, others = pcall(pass_on, 0, false)
if found == 'lock' and not (ok and others > 0) then
  announce(CHANNEL, '0', CLUSTERED)
  announce(RW_CHANNEL, '1', CLUSTERED)
end
return before
