-- Makes the hold of one ticket that of another, with the same token and without a gap.
--
-- KEYS[1] to KEYS[5] as in queue.lua
-- KEYS[6] a tombstone of the former ticket
-- ARGV[1] to ARGV[3] as in queue.lua
-- ARGV[4] ttl in ms
-- ARGV[5] the former ticket
-- ARGV[6] the mode and the label of the ticket
-- returns {1, token}    it holds
--         {0, ms or -1} the former ticket does not hold
--         {-1}          the ticket was released before
--         or the error LOCKKITPARTLY: a write failed behind others
local TTL, FROM, WHO = ARGV[4], ARGV[5], ARGV[6]

-- 1. A repeated adoption.
local others = holders()
local own = redis.pcall('HGET', LOCK, ME)
local mode = redis.pcall('HGET', LOCK, 'mode')
local shares = mode == 'lockkit' or mode == 'lockkit:write'
-- Whether this is the field of a hold. If the shares were lost, as by eviction, the adopter would be the only one that
-- counts.
local function holds(field, ticket)
  return type(field) == 'string' and (not shares or redis.call('ZSCORE', SHARES, ticket))
end
local function prolong_lock()
  redis.call('PEXPIRE', LOCK, math.max(redis.call('PTTL', LOCK), tonumber(TTL)))
end
if holds(own, ME) then
  if shares then prolong(ME, TTL) else prolong_lock() end
  return {1, token_of(own)}
end
if redis.call('EXISTS', TOMBSTONE) == 1 then return {-1} end
-- Another ticket may have taken the hold over, in a write that was lost.
if refusal() then return refusal() end

-- 2. Only a hold that lasts, and not beside holders that the new mode does not fit.
local was = redis.pcall('HGET', LOCK, FROM)
if not holds(was, FROM) or not fits(WHO, others - 1, false) then return {0, redis.call('PTTL', LOCK)} end

-- 3. With its lease, or a longer one. The holder is never removed before its follower is there.
local token, left = token_of(was), shares and redis.call('ZSCORE', SHARES, FROM)
local ends = math.floor(now() / 1000) + tonumber(TTL)
ends = math.max(ends, left and tonumber(left) or math.floor(now() / 1000) + redis.call('PTTL', LOCK))
ends = string.format('%.0f', ends)
local function change_hands()
  redis.call('HSET', LOCK, ME, token .. ' ' .. WHO)
  redis.call('HDEL', LOCK, FROM)
  if mode_of(WHO) == 'x' and not shares then return prolong_lock() end
  redis.call('HSET', LOCK, 'mode', string.match(mode_of(WHO), '[xw]') and 'lockkit:write' or 'lockkit')
  if shares then redis.call('ZREM', SHARES, FROM) else redis.call('DEL', SHARES) end
  redis.call('ZADD', SHARES, ends, ME)
  live_until_the_latest_end()
end
redis.call('SET', KEYS[6], '', 'PX', TTL)
local ok, failure = pcall(change_hands)
if not ok then
  if type(failure) == 'table' then failure = failure['err'] end
  return redis.error_reply('LOCKKITPARTLY the hold has perhaps changed hands: ' .. failure)
end

-- 4. A writer that reads now lets others in.
pcall(function() pass_on(holders()) end)
return {1, token}
