-- Ends the hold of a ticket, writes if it held, and passes the lock on, in one step. Follows ending.lua and commands.lua.
--
-- KEYS as in queue.lua
-- ARGV[1] to ARGV[6] as in release.lua
-- ARGV[7] the token of the ticket
-- ARGV[8] the index of the first word of the commands that write
-- ARGV[9..] the commands that its section reads, and those that write, as in commands.lua
-- returns {1, replies}  done
--         {1, text}     a command has failed; the writes before it stay
--         {0}           the hold has ended: nothing was written
local first = tonumber(ARGV[8])
local own = redis.pcall('HGET', LOCK, ME)
local valid = type(own) == 'string' and token_of(own) == ARGV[7]

-- Before the first write: a request that is repeated finds no hold and writes nothing, also if a command fails.
local held = end_hold()
local replies = held and valid and commands_or_error(first, #ARGV)

-- After the last write, so that the next section reads it.
READS = digest(9, first - 1)
read = function()
  local found = commands_or_error(9, first - 1)
  return type(found) == 'table' and encode(found)
end
pass_on_after(held)
return replies and {1, replies} or {0}
