-- Checks the hold, and runs the script of the caller in the same step. The script follows it.
--
-- KEYS[1] the lock; the caller's keys follow
-- ARGV[1] the ticket, ARGV[2] its token; the caller's arguments follow
-- returns what the caller's script returns, or the error LOCKKITFENCED
local held = redis.pcall('HGET', KEYS[1], ARGV[1])
if type(held) ~= 'string' or string.match(held, '^%d+') ~= ARGV[2] then
  return redis.error_reply('LOCKKITFENCED the hold has ended')
end
-- Not with unpack, which takes 8000 values at most.
local function from(first, list)
  local rest = {}
  for i = first, #list do rest[i - first + 1] = list[i] end
  return rest
end
local KEYS, ARGV = from(2, KEYS), from(3, ARGV)
