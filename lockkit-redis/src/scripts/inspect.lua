-- Describes a lock and changes nothing.
--
-- KEYS as in queue.lua
-- ARGV[1] ARGV[2] as in queue.lua
-- returns {kind, ms left, token or '', living waiters, holders...}
return describe(kind())
