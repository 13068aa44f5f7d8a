-- Runs the commands of the caller. Follows guard.lua.
--
-- KEYS[1..] their keys
-- ARGV      for each command: the number of its words, then its words
-- returns the reply of each; stops at the first error and returns that
local replies, at = {}, 1
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  replies[#replies + 1] = redis.call(unpack(ARGV, at + 1, at + count))
  at = at + 1 + count
end
return replies
