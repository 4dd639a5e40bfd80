-- a: ticks in a sub-window, b: sub-windows in a period, c: tick in µs
-- The state is the form (3) and the instant of the last charge in 7 bytes, how
-- many bytes a count has in 1, then the counts, that of the last charge first.
-- aux is the table of the counts; aux[0] is the number of the first's sub-window.

--@ look
local head, low, width
if #state > 8 and #state <= 8 + (b + 1) * 7 then
  head, low, width = unpack('>BI6B', state)
end
if not head or head < 48 or head >= 64 or width < 1 or width > 7 or (#state - 8) % width > 0 then
  broken = 2
else
  local last = (head - 48) * 281474976710656 + low
  if last > now then
    if last - now > math.max(a * b * c, 1000000) then
      state = ''
    else
      now = last
    end
  end
  if width == 1 then
    aux = {string.byte(state, 9, -1)}
  else
    aux = {}
    local form = '>I' .. width
    for p = 9, #state, width do
      aux[#aux + 1] = unpack(form, state, p)
    end
  end
  aux[0] = floor(floor(last / c) / a)
  local ticks = floor(now / c)
  local shift = floor(ticks / a) - aux[0]
  for j = 1, math.min(#aux, b - shift) do
    used = used + aux[j]
  end
  local old = aux[b - shift + 1] or 0
  if shift <= b and old > 0 then
    local ma, mb, mc, mq = old, a - ticks % a, a, nil
    --> muldivup
    used = used + mq
  end
end

--@ charge
used = used + cost
local at = floor(floor(now / c) / a)
local counts = {[0] = at, cost}
if aux then
  local shift = at - aux[0]
  if shift == 0 then
    counts = aux
    counts[1] = counts[1] + cost
  else
    for j = 2, math.min(shift, b + 1) do
      counts[j] = 0
    end
    for j = 1, math.min(#aux, b + 1 - shift) do
      counts[shift + j] = aux[j]
    end
  end
end
while counts[#counts] == 0 do
  counts[#counts] = nil
end
aux = counts
--> window pack

--@ pack
local width, largest, parts = 1, 0, {}
for j = 1, #aux do
  if aux[j] > largest then
    largest = aux[j]
  end
end
if largest >= 4294967296 then
  width = 7
elseif largest >= 65536 then
  width = 4
elseif largest >= 256 then
  width = 2
end
local form = '>I' .. width
for j = 1, #aux do
  parts[j] = pack(form, aux[j])
end
write = pack('>BI6B', 48 + floor(now / 281474976710656), now % 281474976710656, width) .. table.concat(parts)

--@ retry
-- Sub-windows from this one on: the first offset in one of them at which it fits.
local i = floor(floor(now / c) / a)
local shift, recent = i - aux[0], 0
for j = 1, math.min(#aux, b - shift) do
  recent = recent + aux[j]
end
while true do
  local old = shift <= b and aux[b - shift + 1] or 0
  local room = capacity - recent - cost
  if room >= 0 then
    local off = 0
    if old > 0 then
      off = math.max(0, a - floor(room * a / old))
    end
    if off < a then
      wait = (i * a + off) * c - now
      break
    end
  end
  i, shift = i + 1, shift + 1
  recent = recent - (shift <= b and aux[b - shift + 1] or 0)
end

--@ reset
local j = 1
while aux[j] == 0 do
  j = j + 1
end
wait = (aux[0] - j + 1 + b + 1) * a * c - now

--@ refund
local left, kept = cost, 0
local shift = floor(floor(now / c) / a) - aux[0]
for j = 1, math.min(#aux, b - shift + 1) do
  local taken = math.min(left, aux[j])
  aux[j], left = aux[j] - taken, left - taken
  kept = kept + aux[j]
end
if kept == 0 then
  call('DEL', key)
else
  now = (head - 48) * 281474976710656 + low
  --> window pack
end
