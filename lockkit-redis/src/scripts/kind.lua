-- Tells what the key of a lock holds. Follows queue.lua; acquire, inspect and break follow it.
--
-- A field of a lock is "<uuid>:<number>", for lockkit and for Redisson. Other hashes are left alone.
-- returns "none", "lock", "string", or the type of the key
local function kind()
  local found = redis.call('TYPE', LOCK)['ok']
  if found ~= 'hash' then return found end
  if string.match(redis.call('HGET', LOCK, 'mode') or '', '^lockkit') then return 'lock' end
  -- No lock has many holders; a large hash belongs to an application.
  if redis.call('HLEN', LOCK) > 64 then return 'hash' end
  local hex = '%x%x%x%x'
  local four = '%-' .. hex
  local pattern = '^' .. hex .. hex .. four .. four .. four .. four .. hex .. hex .. ':%d+$'
  for _, field in ipairs(redis.call('HKEYS', LOCK)) do
    if not string.match(field, pattern) then return 'hash' end
  end
  return 'lock'
end

