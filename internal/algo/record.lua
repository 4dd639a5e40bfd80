-- Reads a record, and the clock that it is to be looked at by.
--
-- KEYS[1]  the record
-- returns  what lies there, or nil; the server's clock in seconds and µs

local state = redis.pcall('GET', KEYS[1])
if type(state) == 'table' then
  return state
end
local t = redis.call('TIME')
return {state, t[1], t[2]}
