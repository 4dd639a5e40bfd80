-- Takes units back from counts of envoyproxy/ratelimit, of each no more than it has, and tells of
-- it. Other values stay as they are.
--
-- KEYS  counts
-- ARGV  the units for each; then the channel, and what is told there

for i = #KEYS + 2, #ARGV do
  redis.pcall('PUBLISH', ARGV[#KEYS + 1], ARGV[i])
end
for i, key in ipairs(KEYS) do
  local text = redis.call('GET', key)
  if text and string.find(text, '^%d+$') then
    local units = math.min(tonumber(text), tonumber(ARGV[i]))
    if units > 0 then
      redis.call('DECRBY', key, string.format('%.0f', units))
    end
  end
end
return 0
