-- What an operator sees of a lock. It stands before inspect and break, behind queue.lua.
--
-- A field of a lock is "<uuid>:<number>", of ours and of Redisson's; anything else is not touched.
local HEX = '%x%x%x%x'
local FIELD = '^' .. HEX .. HEX .. '%-' .. HEX .. '%-' .. HEX .. '%-' .. HEX .. '%-' .. HEX .. HEX .. HEX .. ':%d+$'

-- The type of the key as far as locks are concerned: "none", "lock", "string", or what it is.
local function kind()
  local found = redis.call('TYPE', LOCK)['ok']
  if found ~= 'hash' then return found end
  -- No lock has many holders; a large hash is somebody's data.
  if redis.call('HLEN', LOCK) > 64 then return 'hash' end
  for _, field in ipairs(redis.call('HKEYS', LOCK)) do
    if not string.match(field, FIELD) then return 'hash' end
  end
  return 'lock'
end

-- {kind, ms left, token or '', living waiters, holders...}
local function describe(found)
  local living = 0
  for _, waiter in ipairs(redis.call('HVALS', WAITERS)) do
    if tonumber(string.match(waiter, '^%d+')) >= now() then living = living + 1 end
  end
  local answer = {found, redis.call('PTTL', LOCK), redis.call('GET', TOKEN) or '', living}
  if found == 'lock' then
    for _, field in ipairs(redis.call('HKEYS', LOCK)) do answer[#answer + 1] = field end
  end
  return answer
end

