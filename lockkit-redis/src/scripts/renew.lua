-- Starts the leases of several holds again. Never makes a hold, and never makes a lease shorter.
--
-- KEYS[2i-1] the i-th lock, KEYS[2i] its token
-- ARGV[1]    how long a token is kept, in ms; 0: without an expiry
-- ARGV[2i]   the i-th ticket, ARGV[2i+1] its ttl in ms
-- returns for each 1 if it was renewed, 0 if the ticket does not hold
local keep = tonumber(ARGV[1])
local replies = {}
for i = 1, #KEYS / 2 do
  local lock, token = KEYS[2 * i - 1], KEYS[2 * i]
  if type(redis.pcall('HGET', lock, ARGV[2 * i])) == 'string' then
    local ttl = tonumber(ARGV[2 * i + 1])
    -- Written in any case: replicas acknowledge what is written.
    redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), ttl))
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
