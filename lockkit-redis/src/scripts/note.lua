-- Gives the hold of a ticket a note, in place of its last one.
--
-- KEYS as in queue.lua
-- ARGV[1] ARGV[2] as in queue.lua
-- ARGV[3] the note
-- returns 1 if the ticket holds, else 0
holders()
local own = redis.pcall('HGET', LOCK, ME)
if type(own) ~= 'string' then return 0 end
redis.call('HSET', LOCK, ME, string.match(own, '^[^\n]*') .. '\n' .. ARGV[3])
return 1
