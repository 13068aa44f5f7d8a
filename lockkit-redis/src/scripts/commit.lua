-- Ends the hold of a ticket, and writes in the same step if it held. Follows `step`, which is release.lua, and
-- commands.lua.
--
-- KEYS as in queue.lua
-- ARGV[1] to ARGV[6] as in release.lua
-- ARGV[7] the token of the ticket
-- ARGV[8..] the commands that write, as in commands.lua
-- returns {1, replies}  done
--         {1, text}     a command has failed; the writes before it stay
--         {0}           the hold has ended: nothing was written
local own = redis.pcall('HGET', LOCK, ME)
local held = type(own) == 'string' and token_of(own) == ARGV[7]

-- Before the first write: a request that is repeated finds no hold and writes nothing, also if a command fails.
if step() == 0 or not held then return {0} end
return {1, commands_or_error(8)}
