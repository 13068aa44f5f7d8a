-- Starts the leases of several holds again that are not exclusive. Never makes a hold, and never makes a lease
-- shorter.
--
-- KEYS[3i-2] the i-th lock, KEYS[3i-1] its token, KEYS[3i] its shares
-- ARGV[1]    how long a token is kept, in ms; 0: without an expiry
-- ARGV[2i]   the i-th ticket, ARGV[2i+1] its ttl in ms
-- returns for each 1 if it was renewed, 0 if the ticket does not hold
local keep = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local replies = {}
for i = 1, #KEYS / 3 do
  local lock, token, shares = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local ticket, ttl = ARGV[2 * i], tonumber(ARGV[2 * i + 1])
  local ends = tonumber(redis.pcall('ZSCORE', shares, ticket) or '0')
  -- The hash alone says who holds: it may have been deleted by hand.
  if ends and ends > now and type(redis.pcall('HGET', lock, ticket)) == 'string' then
    if ends < now + ttl then redis.call('ZADD', shares, string.format('%.0f', now + ttl), ticket) end
    local latest = redis.call('ZREVRANGE', shares, '0', '0', 'WITHSCORES')[2]
    redis.call('PEXPIREAT', lock, latest)
    redis.call('PEXPIREAT', shares, latest)
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
