-- Says how long this primary grants nothing yet. The writes that a failover or a restart lost may be those of any
-- name, so that the server is held back, and not single locks.
--
-- KEYS[1] the primary, a hash without an expiry:
--         run      the server's process
--         id       its replication id
--         since    when it became what it is, in ms
--         longest  the longest quarantine that a client has asked for, in ms
--         epoch    of the failover by which Sentinels made it the primary
--         members  the nodes of which it is one, if it is a node of a Redlock
-- ARGV[1] the quarantine of the client in ms
-- ARGV[2] the nodes of the client's Redlock; empty: it has one server
-- ARGV[3] the epoch that Sentinels gave the client; 0: there are none
-- returns {ms left, replication id, process, clock us}, or the error LOCKKITMEMBERS
local PRIMARY, QUARANTINE, MEMBERS, EPOCH = KEYS[1], tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])

-- Majorities of two different lists need not share a node.
if MEMBERS ~= '' then
  local members = redis.call('HGET', PRIMARY, 'members')
  if members and members ~= MEMBERS then
    return redis.error_reply('LOCKKITMEMBERS other clients have the nodes ' .. members .. ', this one ' .. MEMBERS ..
      ': give all the same list; to change it, stop all clients and then delete the field members of ' .. PRIMARY)
  end
  if not members then redis.call('HSET', PRIMARY, 'members', MEMBERS) end
end

local info = redis.call('INFO', 'server') .. redis.call('INFO', 'replication')
local function field(name)
  return string.match(info, '\n' .. name .. ':([^\r\n]*)')
end
local run, id, uptime = field('run_id'), field('master_replid'), tonumber(field('uptime_in_seconds'))
-- A replica that was promoted keeps the id of its former primary.
local promoted = string.find(field('master_replid2'), '[^0]')

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local names = {'run', 'id', 'since', 'longest', 'epoch'}
local before = redis.call('HMGET', PRIMARY, unpack(names))
local known_run, known_id, since, longest, epoch = unpack(before)
epoch = tonumber(epoch or EPOCH)
if not known_run then
  -- Perhaps it lost its data when it started. Whole seconds are counted, so that the first may be a moment.
  since = promoted and now or now - math.max(0, uptime - 1) * 1000
elseif known_run ~= run or known_id ~= id and promoted or EPOCH > epoch then
  -- With a later epoch it is the primary again, which it never ceased to be for itself: another one was in between.
  since = now
end
-- A new id without a promotion: nobody replicated for a while, and nothing is lost.

longest = math.max(tonumber(longest or '0'), QUARANTINE)
local after = {run, id, string.format('%.0f', since), string.format('%.0f', longest), tostring(math.max(epoch, EPOCH))}
for at, name in ipairs(names) do
  -- Only what is new: a server without memory refuses it, but would renew and release.
  if before[at] ~= after[at] then redis.call('HSET', PRIMARY, name, after[at]) end
end
return {math.max(0, tonumber(since) + longest - now), id, run, time[1] .. string.format('%06d', time[2])}
