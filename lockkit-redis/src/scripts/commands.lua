-- Runs the commands of the caller.
--
-- ARGV from `first` on, for each command: the number of its words, then its words
-- returns the reply of each; stops at the first error and raises it
local function commands(first)
  local replies, at = {}, first
  while at <= #ARGV do
    local count = tonumber(ARGV[at])
    replies[#replies + 1] = redis.call(unpack(ARGV, at + 1, at + count))
    at = at + 1 + count
  end
  return replies
end

-- Returns these replies, or the text of the error.
local function commands_or_error(first)
  local ok, replies = pcall(commands, first)
  if not ok and type(replies) == 'table' then return replies['err'] end
  return replies
end

