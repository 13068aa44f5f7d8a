-- Ends the hold of any ticket on a lock, and passes the lock on.
--
-- KEYS as in queue.lua
-- ARGV[1] to ARGV[3] as in queue.lua
-- ARGV[4] the channel of the lock, which Redisson's waiters subscribe
-- returns as inspect: what was there before; only the kind "lock" is ended
local CHANNEL = ARGV[4]

-- 1. Only a lock is ended: not a string, and not a hash of an application.
local found = kind()
local before = describe(found)
if found ~= 'lock' and found ~= 'none' then return before end
if found == 'lock' then redis.call('DEL', LOCK, SHARES) end

-- 2. As after a release.
local ok, others = pcall(pass_on, 0, false)
if found == 'lock' and not (ok and others > 0) then redis.pcall('PUBLISH', CHANNEL, '0') end
return before
