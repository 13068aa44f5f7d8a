-- Describes a lock for an operator. Follows queue.lua and kind.lua; inspect and break follow it.
--
-- returns {kind, ms left, token or '', living waiters, holders...}
local function describe(found)
  local living = 0
  for _, waiter in ipairs(redis.call('HVALS', WAITERS)) do
    if tonumber(string.match(waiter, '^%d+')) >= now() then living = living + 1 end
  end
  local reply = {found, redis.call('PTTL', LOCK), redis.call('GET', TOKEN) or '', living}
  if found == 'lock' then
    for _, field in ipairs(redis.call('HKEYS', LOCK)) do
      if field ~= 'mode' then reply[#reply + 1] = field end
    end
  end
  return reply
end

