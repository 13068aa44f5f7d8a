-- Runs the commands of the caller.
--
-- ARGV from `first` to `last`, for each command: the number of its words, then its words
-- returns the reply of each; stops at the first error and raises it
local function commands(first, last)
  local replies, at = {}, first
  while at <= last do
    local count = tonumber(ARGV[at])
    replies[#replies + 1] = redis.call(unpack(ARGV, at + 1, at + count))
    at = at + 1 + count
  end
  return replies
end

-- Returns these replies, or the text of the error.
local function commands_or_error(first, last)
  local ok, replies = pcall(commands, first, last)
  if not ok and type(replies) == 'table' then return replies['err'] end
  return replies
end
