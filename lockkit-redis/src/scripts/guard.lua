-- Checks the hold, and runs the script of the caller in the same step. Follows arguments.lua; the script follows it.
--
-- KEYS[1] the lock, KEYS[2] its shares; the caller's keys follow
-- ARGV[1] the ticket, ARGV[2] its token; the caller's arguments follow
-- returns what the caller's script returns, or the error LOCKKITFENCED
local held = redis.pcall('HGET', KEYS[1], ARGV[1])
local token, mode = string.match(type(held) == 'string' and held or '', '^(%d+) (%S+)')
-- A share whose lease has ended holds no longer, though no step has removed it yet.
local ends = mode and mode ~= 'x' and redis.call('ZSCORE', KEYS[2], ARGV[1])
local time = ends and redis.call('TIME')
if token ~= ARGV[2] or time and tonumber(ends) <= time[1] * 1000 + time[2] / 1000 then
  return redis.error_reply('LOCKKITFENCED the hold has ended')
end
local KEYS, ARGV = from(3, KEYS), from(3, ARGV)
