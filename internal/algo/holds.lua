-- Lists holds (held.lua), and the clock that they are to be looked at by.
--
-- KEYS     the holds of limits
-- returns  the server's clock in seconds and µs; then of each key its fields and their values

local t = redis.call('TIME')
local answer = {t[1], t[2]}
for j = 1, #KEYS do
  local fields = redis.pcall('HGETALL', KEYS[j])
  if fields.err then
    return fields
  end
  answer[j + 2] = fields
end
return answer
