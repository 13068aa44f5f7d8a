-- The values of a list from `first` on: not with unpack, which takes 8000 values at most.
local function from(first, list)
  local rest = {}
  for i = first, #list do rest[i - first + 1] = list[i] end
  return rest
end
