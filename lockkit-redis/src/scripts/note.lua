-- Gives the hold of a ticket a note, in place of its last one.
--
-- KEYS as in queue.lua
-- ARGV[1] to ARGV[3] as in queue.lua
-- ARGV[4] the note
-- returns 1 if the ticket holds, else 0
holders()
local own = redis.pcall('HGET', LOCK, ME)
if type(own) ~= 'string' then return 0 end
redis.call('HSET', LOCK, ME, string.match(own, '^[^\n]*') .. '\n' .. ARGV[4])
return 1
