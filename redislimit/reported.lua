-- Reads parts of a report that have not ended, as many as fit into one reply.
--
-- KEYS[1]  a sorted set of the parts' names by the instant when they end, ms
-- KEYS[2]  a hash of the parts' texts by their names
-- ARGV     how many bytes of texts are enough; the names of the parts; no names: all parts
-- returns  names and texts in turn; the names that are left for another call

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local live = redis.call('ZRANGE', KEYS[1], '(' .. string.format('%.0f', now), '+inf', 'BYSCORE')
local left = live
if #ARGV > 1 then
  local lives = {}
  for _, part in ipairs(live) do
    lives[part] = true
  end
  left = {}
  for i = 2, #ARGV do
    if lives[ARGV[i]] then
      left[#left + 1] = ARGV[i]
    end
  end
end

local texts, bytes = {}, 0
while #left > 0 and bytes < tonumber(ARGV[1]) do
  local part = table.remove(left)
  local text = redis.call('HGET', KEYS[2], part)
  if text then
    texts[#texts + 1] = part
    texts[#texts + 1] = text
    bytes = bytes + #part + #text
  end
end
return {texts, left}
