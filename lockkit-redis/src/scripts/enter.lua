-- Takes the lock for a ticket, and reads in the same step if it holds. Follows `step`, which is acquire.lua, and
-- commands.lua.
--
-- KEYS as in queue.lua
-- ARGV[1] to ARGV[9] as in acquire.lua
-- ARGV[10..] the commands that read, as in commands.lua
-- returns {1, token, replies}  it holds
--         {1, token, text}     it holds, and a command has failed: an error here would hide the hold from its client
--         else as acquire.lua
READS = digest(10, #ARGV)
local attempt = step()
if attempt[1] ~= 1 then return attempt end
return {1, attempt[2], commands_or_error(10, #ARGV)}
