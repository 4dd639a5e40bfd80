-- The numbers of an ask, and its keys (whole.lua).
kind, penalty, full, cost, capacity, unit, a, b, c, d, pos = unpack('>BHI7I7I7I7I7I7I7I7', requests, pos)
way = nil
if kind >= 128 then
  kind = kind - 128
  way, span, pos = unpack('>BI7', requests, pos)
end
key, heldkey = nil, nil
if kind ~= 5 then
  k = k + 1
  key = keys[k]
end
if way then
  k = k + 1
  heldkey = keys[k]
end
