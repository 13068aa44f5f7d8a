-- Describes a lock and changes nothing.
--
-- KEYS as in queue.lua
-- ARGV[1] to ARGV[3] as in queue.lua
-- returns {kind, ms left, token or '', living waiters, holders...}
return describe(kind())
