-- What is needed to read for the next section. Follows queue.lua.

-- Says which commands these are; "-" if there are none.
local function digest(first, last)
  local parts = {}
  for at = first, last do parts[#parts + 1] = #ARGV[at] .. ' ' .. ARGV[at] end
  return #parts == 0 and '-' or redis.sha1hex(table.concat(parts))
end

-- A reply as RESP.
local function encode(reply)
  if type(reply) == 'string' then return '$' .. #reply .. '\r\n' .. reply .. '\r\n' end
  if type(reply) == 'number' then return string.format(':%.0f\r\n', reply) end
  if type(reply) ~= 'table' then return '$-1\r\n' end
  if reply['ok'] then return '+' .. reply['ok'] .. '\r\n' end
  local parts = {'*' .. #reply .. '\r\n'}
  for at, part in ipairs(reply) do parts[at + 1] = encode(part) end
  return table.concat(parts)
end

