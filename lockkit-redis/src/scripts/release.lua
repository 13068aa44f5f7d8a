-- Ends the hold of a ticket, or takes it out of the queue, and passes the lock on. Follows ending.lua.
--
-- KEYS as in queue.lua
-- ARGV[1] to ARGV[3] as in queue.lua
-- ARGV[4] the channel of the lock, which Redisson's waiters subscribe
-- ARGV[5] how long to refuse the ticket from now on, in ms; 0 if all its attempts had a reply
-- ARGV[6] 1 in a cluster
-- returns 1 if the ticket held, else 0
local held = end_hold()
pass_on_after(held)
return held and 1 or 0
