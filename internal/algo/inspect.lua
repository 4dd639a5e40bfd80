-- Reads what is kept of counts, and the clock that it is to be looked at by.
--
-- KEYS     the counts
-- returns  the server's clock in seconds and µs; then of each count what tells its
--          instant, the string or a log's last block ("" where there is none), and for
--          how many ms it is kept

local t = redis.call('TIME')
local answer = {t[1], t[2]}
for j = 1, #KEYS do
  local key = KEYS[j]
  local state = redis.pcall('GET', key)
  if type(state) == 'table' then
    state = redis.pcall('LINDEX', key, -1)
  end
  if type(state) == 'table' then
    return state
  end
  answer[j * 2 + 1] = state or ''
  answer[j * 2 + 2] = redis.call('PTTL', key)
end
return answer
