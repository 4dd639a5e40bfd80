-- Takes units back from counts of envoyproxy/ratelimit, of each no more than it has, and tells of
-- it. Other values stay as they are.
--
-- KEYS  counts
-- ARGV  the units for each; then the channel, and what is told there

for i = #KEYS + 2, #ARGV do
  redis.pcall('PUBLISH', ARGV[#KEYS + 1], ARGV[i])
end
for i, key in ipairs(KEYS) do
  local text = redis.pcall('GET', key) -- an error if it is no string
  if type(text) == 'string' and string.find(text, '^%d+$') and tonumber(text) < 9223372036854775807 then
    local units = math.min(tonumber(text), tonumber(ARGV[i]))
    if units > 0 then
      redis.call('DECRBY', key, string.format('%.0f', units))
    end
  end
end
return 0
