-- Refunds units: for each ask, cost units to its key. Read take.lua first; this script
-- reads counts in the same way, and keeps every expiry as it was.
--
-- KEYS     the asks' counts
-- ARGV[1]  the instant in µs; empty: the server's clock
-- ARGV[2]  the asks, packed (see protocol.go)
-- ARGV[3]  the channel of invalidations; the arguments after it are published there
-- returns  0, or, if a key does not hold what it should, its number·2 + (0: wrong
--          type, 1: unreadable); where a count of the calendar is to be asked for with
--          other windows, its number and the clock. What came before it was refunded

local call, try, unpack, pack = redis.call, redis.pcall, struct.unpack, struct.pack
local floor, ceil = math.floor, math.ceil
local clock
if ARGV[1] ~= '' then
  clock = tonumber(ARGV[1])
else
  local t = call('TIME')
  clock = t[1] * 1000000 + t[2]
end
local pos = 1
local outside = 4503599627370496 -- see calendar.lua
--> invalidate

for i = 1, #KEYS do
  local kind, penalty, full, cost, capacity, unit, a, b, c, d
  kind, penalty, full, cost, capacity, unit, a, b, c, d, pos = unpack('>BHI7I7I7I7I7I7I7I7', ARGV[2], pos)
  local key = KEYS[i]
  local now, used, aux, broken, write
  if kind == 3 then
    --> log look
    if used > 0 and cost > 0 then
      --> log refund
    end
  else
    local state = try('GET', key)
    now, used = clock, 0
    if not state and kind ~= 6 then
      -- unused
    elseif type(state) == 'table' then
      --> wrongtype
    elseif kind <= 1 then
      --> bucket look
      if used > 0 and cost > 0 then
        --> bucket refund
      end
    elseif kind == 2 then
      --> fixed look
      if used > 0 and cost > 0 then
        --> fixed refund
      end
    elseif kind == 6 then
      --> calendar look
      if used > 0 and cost > 0 then
        --> calendar refund
      end
    else
      --> window look
      if used > 0 and cost > 0 then
        --> window refund
      end
    end
  end
  if broken and broken >= outside then
    return {i, clock}
  end
  if broken then
    return i * 2 + broken - 1
  end
  if write then
    call('SET', key, write, 'KEEPTTL')
  end
end

return 0
