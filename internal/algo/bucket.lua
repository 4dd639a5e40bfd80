-- a: rate, b: tick in µs, c: amount, d: period in µs
-- The state is 12 bytes where it can be, for Redis's allocator has a place of 32
-- bytes for those: the form (0, or 1 for ticks of 1 ms) and the instant of the
-- last charge in 7, the level in 4 and the amount in 1; else 7 each.

--@ look
local head, low, level, amount
if #state == 12 then
  head, low, level, amount = unpack('>BI6I4B', state)
elseif #state == 21 then
  head, low, level, amount = unpack('>BI6I7I7', state)
end
if not head or head >= 32 then
  broken = 2
else
  local tick = 1
  if head >= 16 then
    head, tick = head - 16, 1000
  end
  local last = head * 281474976710656 + low
  if last > now then
    now = last
  end
  if amount ~= c or tick ~= b then
    -- The level is restated in the parts of this limit, rounded up, unless it
    -- has run dry by now under the amount of then.
    local x, y = amount, d / tick
    while y > 0 do
      x, y = y, x % y
    end
    if amount / x * (floor(now / tick) - floor(last / tick)) >= level then
      level = 0
    else
      local ma, mb, mc, mq = level, unit, d / tick / x, nil
      --> muldivup
      level = mq
    end
  end
  -- A product too large to be exact is far above any level.
  local fell = a * (floor(now / b) - floor(last / b))
  if fell < level then
    used = level - fell
  end
end

--@ charge
used = used + cost * unit
local at, level = now, used
--> bucket pack

--@ pack
local head, low = floor(at / 281474976710656), at % 281474976710656
if b == 1000 then
  head = head + 16
end
if level < 4294967296 and c < 256 then
  write = pack('>BI6I4B', head, low, level, c)
else
  write = pack('>BI6I7I7', head, low, level, c)
end

--@ retry
wait = math.min(ceil((used + cost * unit - full) / a) * b, 4503599627370496) - now % b

--@ reset
wait = math.min(ceil(used / a) * b, 4503599627370496) - now % b

--@ giveback
if cost * unit >= used then
  call('DEL', key)
else
  local at, level = head * 281474976710656 + low, level - cost * unit
  --> bucket pack
end
