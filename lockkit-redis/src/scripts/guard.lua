-- Checks the hold, and runs the script of the caller in the same step. Follows arguments.lua; the script follows it.
--
-- KEYS[1] the lock; the caller's keys follow
-- ARGV[1] the ticket, ARGV[2] its token; the caller's arguments follow
-- returns what the caller's script returns, or the error LOCKKITFENCED
local held = redis.pcall('HGET', KEYS[1], ARGV[1])
if type(held) ~= 'string' or string.match(held, '^%d+') ~= ARGV[2] then
  return redis.error_reply('LOCKKITFENCED the hold has ended')
end
local KEYS, ARGV = from(2, KEYS), from(3, ARGV)
