-- Starts the leases of several holds again. Never makes a hold, and never makes a lease shorter.
--
-- KEYS       for each hold the lock and its token, and unless it is exclusive the shares
-- ARGV[1]    how long a token is kept, in ms; 0: without an expiry
-- ARGV[3i-1] the i-th ticket, ARGV[3i] its ttl in ms, ARGV[3i+1] 1 if its hold is exclusive, else 0
-- returns for each 1 if it was renewed, 0 if the ticket does not hold
local keep = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local replies, at = {}, 1
for i = 1, (#ARGV - 1) / 3 do
  local ticket, ttl, exclusive = ARGV[3 * i - 1], tonumber(ARGV[3 * i]), ARGV[3 * i + 1] == '1'
  local lock, token, shares = KEYS[at], KEYS[at + 1], KEYS[at + 2]
  at = at + (exclusive and 2 or 3)
  local ends = exclusive or tonumber(redis.pcall('ZSCORE', shares, ticket) or '0')
  local lasts = exclusive or ends and ends > now
  -- The hash alone says who holds: it may have been deleted by hand.
  if lasts and type(redis.pcall('HGET', lock, ticket)) == 'string' then
    -- Written in any case: replicas acknowledge what is written. First: it needs no memory, and a server that has none
    -- refuses no later write of a script.
    redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), ttl))
    if not exclusive then
      if ends < now + ttl then redis.call('ZADD', shares, string.format('%.0f', now + ttl), ticket) end
      local latest = redis.call('ZREVRANGE', shares, '0', '0', 'WITHSCORES')[2]
      redis.call('PEXPIREAT', lock, latest)
      redis.call('PEXPIREAT', shares, latest)
    end
    -- The token must outlive the longest hold. A token without an expiry keeps none.
    if keep > 0 then
      local left = redis.call('PTTL', token)
      if left >= 0 and left < keep * 0.9 then redis.call('PEXPIRE', token, keep) end
    end
    replies[i] = 1
  else
    replies[i] = 0
  end
end
return replies
