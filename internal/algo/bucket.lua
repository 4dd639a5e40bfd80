-- a: rate, b: tick in µs, c: amount, d: period in µs
-- The state is 12 bytes where it can be, for Redis's allocator has a place of 32
-- bytes for those: the form (0, or 1 for ticks of 1 ms) and the instant of the
-- last charge in 7, the level in 4 and the amount in 1; else 7 each.

--@ look
local head, low, level, amount
local late = 0 -- what flows out in the tick of the charge, where that was in shorter ones
local tick, own, part, dried -- level and unit in the terms of amount and tick, and what has flowed out in them
if #state == 12 then
  head, low, level, amount = unpack('>BI6I4B', state)
elseif #state == 21 then
  head, low, level, amount = unpack('>BI6I7I7', state)
end
if not head or head >= 32 then
  broken = 2
else
  tick, own, part = 1, level, unit
  if head >= 16 then
    head, tick = head - 16, 1000
  end
  local last = head * 281474976710656 + low
  if last > now then
    if last - now > math.max(d, 1000000) then
      last, level = now, 0
    else
      now = last
    end
  end
  if amount ~= c or tick ~= b then
    -- The level is restated in the parts of this limit, rounded up, unless it
    -- has run dry by now under the amount of then.
    local x, y = amount, d / tick
    while y > 0 do
      x, y = y, x % y
    end
    part = d / tick / x
    dried = amount / x * (floor(now / tick) - floor(last / tick))
    if dried >= level then
      level = 0
    else
      local ma, mb, mc, mq = level, unit, part, nil
      --> muldivup
      if tick < b and last % b > 0 then
        late = a
      end
      level = math.min(mq + late, 4503599627370496)
    end
  end
  -- A product too large to be exact is far above any level.
  local fell = a * (b == 1 and now - last or floor(now / b) - floor(last / b))
  if fell < level then
    used = level - fell
  end
end

--@ charge
used = used + cost * unit
local at, level, amount, tick = now, used, c, b
--> bucket pack

--@ pack
local head, low = floor(at / 281474976710656), at % 281474976710656
if tick == 1000 then
  head = head + 16
end
if level < 4294967296 and amount < 256 then
  write = pack('>BI6I4B', head, low, level, amount)
else
  write = pack('>BI6I7I7', head, low, level, amount)
end

--@ reset
wait = math.min(ceil(used / a) * b, 4503599627370496) - now % b

--@ refund
-- In the parts of its own amount, so that the state ends when it expires. What that
-- comes to in those of this limit is a subtraction, unless the level was too large
-- to be restated.
local kept, rest = own - cost * part, used - cost * unit
if kept > 0 and level == 4503599627370496 then
  local ma, mb, mc, mq = kept, unit, part, nil
  --> muldivup
  rest = math.min(mq + late, 4503599627370496) - (level - used)
end
if kept <= 0 or rest <= 0 or dried and dried >= kept then
  call('DEL', key)
else
  local at, level = head * 281474976710656 + low, kept
  --> bucket pack
end
