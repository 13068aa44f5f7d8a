-- Describes a lock for an operator. Follows queue.lua and kind.lua; inspect and break follow it.
--
-- returns {kind, ms left, token or '', living waiters, clock us}, and for each holder its field, value, and ms
-- left
local function describe(found)
  local living = 0
  for _, waiter in ipairs(redis.call('HVALS', WAITERS)) do
    if tonumber(string.match(waiter, '^%d+')) >= now() then living = living + 1 end
  end
  local reply = {found, redis.call('PTTL', LOCK), redis.call('GET', TOKEN) or '', living,
    string.format('%.0f', now())}
  if found ~= 'lock' then return reply end
  for _, field in ipairs(redis.call('HKEYS', LOCK)) do
    local ends = tonumber(redis.call('ZSCORE', SHARES, field) or '0')
    local left = ends > 0 and ends - math.floor(now() / 1000) or reply[2]
    -- A share whose lease has ended holds no longer, though no step has removed it yet.
    if field ~= 'mode' and (ends == 0 or left > 0) then
      reply[#reply + 1] = field
      reply[#reply + 1] = redis.call('HGET', LOCK, field)
      reply[#reply + 1] = left
    end
  end
  return reply
end

