-- Ends the hold on a lock, whoever has it, and passes the lock on.
--
-- KEYS as in queue.lua
-- ARGV[1] ARGV[2] as in queue.lua
-- ARGV[3] the lock's own channel, on which Redisson's waiters listen
-- returns as inspect: what was there before; only a kind of "lock" was ended
local CHANNEL = ARGV[3]

-- 1. Nothing but a lock is touched: not a string, not a hash of other things.
local found = kind()
local before = describe(found)
if found ~= 'lock' and found ~= 'none' then return before end
if found == 'lock' then redis.call('DEL', LOCK) end

-- 2. As after a release.
local ok, first, window, beat, channel = pcall(head)
if ok and first then
  pcall(grant, first, window, beat, channel)
elseif found == 'lock' then
  redis.pcall('PUBLISH', CHANNEL, '0')
end
return before
