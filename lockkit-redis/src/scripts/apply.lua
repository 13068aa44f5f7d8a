-- Runs the script of the caller if the lock is free and nobody waits. Follows queue.lua and arguments.lua; the script
-- follows it.
--
-- KEYS[1] to KEYS[5] as in queue.lua; the caller's keys follow
-- ARGV[1] to ARGV[3] as in queue.lua; the caller's arguments follow
-- returns what the caller's script returns, or the error LOCKKITHELD
if redis.call('PTTL', LOCK) ~= -2 or head() or refusal() then
  return redis.error_reply('LOCKKITHELD the lock is held or waited for')
end
-- It would be the token of a hold: what an earlier holder writes with its own is older.
next_token()
local KEYS, ARGV = from(6, KEYS), from(4, ARGV)
