-- The caller's commands, behind guard.lua.
--
-- KEYS[1..] the keys they touch
-- ARGV      for each command the number of its words, then its words
-- returns the answer of each; stops at the first error and answers that
local answers, at = {}, 1
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  answers[#answers + 1] = redis.call(unpack(ARGV, at + 1, at + count))
  at = at + 1 + count
end
return answers
