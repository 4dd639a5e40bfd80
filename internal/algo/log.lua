-- a: period in µs, b: bytes of an instant within a block
-- The log is a list of blocks of up to 128 marks. A block is the instant of its
-- first mark in 7 bytes, the running sum before it in 7, the bytes of an instant
-- and of a sum in 1 each; then its marks, each an instant and a sum, both counted
-- from the block's. A mark costs 5 or 6 bytes where a member of a sorted set
-- costs 120, and a block can be searched without being taken apart.
-- Running sums wrap at 2^52, which no limit's amount reaches.
-- aux: size (blocks), dead (blocks with no mark that counts), skip (marks of the
-- next block that do not count), before (the sum before the first that does), and
-- of the last block: block, base, sum, wide, deep, marks, and of its last mark:
-- at, total (from sum).

--@ look
now, used = clock, 0
local size = try('LLEN', key)
if type(size) == 'table' then
  local state = size
  --> wrongtype
elseif size > 0 then
  local block = call('LINDEX', key, -1)
  local base, sum, wide, deep, step
  if #block > 16 then
    base, sum, wide, deep = unpack('>I7I7BB', block)
    step = wide + deep
  end
  if not base or base >= 4503599627370496
    or wide < 1 or wide > 7 or deep < 1 or deep > 7 or (#block - 16) % step > 0 then
    broken = 2
  else
    local form = '>I' .. wide .. 'I' .. deep
    local at, total = unpack(form, block, #block - step + 1)
    at = at + base
    local horizon
    if at > now then
      if at - now > math.max(a, 1000000) then
        horizon = at
      else
        now = at
      end
    end
    aux = {size = size, block = block, base = base, sum = sum, wide = wide, deep = deep,
      marks = (#block - 16) / step, at = at, total = total}
    -- The block with the last mark that no longer counts, if there is one.
    horizon = horizon or now - a
    local low, high = 0, size - 1
    local found, foundbase, foundsum, foundwide, founddeep
    while low <= high do
      local mid = high
      local other, obase, osum, owide, odeep = block, base, sum, wide, deep
      if high < size - 1 then
        mid = floor((low + high) / 2)
        other = call('LINDEX', key, mid)
        obase, osum, owide, odeep = unpack('>I7I7BB', other)
      end
      if obase <= horizon then
        aux.dead, low = mid, mid + 1
        found, foundbase, foundsum, foundwide, founddeep = other, obase, osum, owide, odeep
      else
        high = mid - 1
        if mid == 0 then
          aux.before = osum
        end
      end
    end
    if found then
      local step, form = foundwide + founddeep, '>I' .. foundwide .. 'I' .. founddeep
      local marks = (#found - 16) / step
      local low, high = 1, marks -- how many no longer count
      while low < high do
        local mid = ceil((low + high) / 2)
        if foundbase + unpack(form, found, 17 + (mid - 1) * step) <= horizon then
          low = mid
        else
          high = mid - 1
        end
      end
      local _, gone = unpack(form, found, 17 + (low - 1) * step)
      aux.before, aux.skip = (foundsum + gone) % 4503599627370496, low
      if low == marks then
        aux.dead, aux.skip = aux.dead + 1, 0
      end
    else
      aux.dead, aux.skip = 0, 0
    end
    used = (sum + total - aux.before) % 4503599627370496
  end
end

--@ charge
if used == 0 and aux then
  call('DEL', key)
  aux = nil
elseif aux and aux.dead > 0 then
  call('LTRIM', key, aux.dead, -1)
end
used = used + cost
local done
if aux and aux.marks < 128 and now - aux.base < 256 ^ aux.wide
  and aux.total + cost < math.min(256 ^ aux.deep, 4503599627370496) then
  local mark = pack('>I' .. aux.wide .. 'I' .. aux.deep, now - aux.base, aux.total + cost)
  local block = aux.block
  if aux.at == now then
    block = string.sub(block, 1, -1 - #mark)
  end
  done = try('LSET', key, -1, block .. mark)
else
  local deep = 7
  if cost == 1 then
    deep = 1
  elseif cost <= 256 then
    deep = 2
  elseif cost <= 16777216 then
    deep = 4
  end
  local sum = aux and (aux.sum + aux.total) % 4503599627370496 or 0
  done = try('RPUSH', key, pack('>I7I7BBI' .. b .. 'I' .. deep, now, sum, b, deep, 0, cost))
end
--> room
aux = {at = now}

--@ retry
-- The mark whose leaving frees enough: in the last block that starts before it.
local excess = used + cost - capacity
local low, high, found = aux.dead + 1, aux.size - 1, aux.dead
while low <= high do
  local mid = floor((low + high) / 2)
  local _, osum = unpack('>I7I7', call('LINDEX', key, mid))
  if (osum - aux.before) % 4503599627370496 < excess then
    found, low = mid, mid + 1
  else
    high = mid - 1
  end
end
local block = call('LINDEX', key, found)
local base, sum, wide, deep = unpack('>I7I7BB', block)
local step, form = wide + deep, '>I' .. wide .. 'I' .. deep
local low, high = found == aux.dead and aux.skip or 0, (#block - 16) / step - 1
while low < high do
  local mid = floor((low + high) / 2)
  local _, upto = unpack(form, block, 17 + mid * step)
  if (sum + upto - aux.before) % 4503599627370496 >= excess then
    high = mid
  else
    low = mid + 1
  end
end
wait = base + unpack(form, block, 17 + low * step) + a - now

--@ reset
local at = aux.at
if aux.marks and aux.marks > 1 then
  -- A refund may leave a last mark of no units, which only holds the clock.
  local step = aux.wide + aux.deep
  local before, sum = unpack('>I' .. aux.wide .. 'I' .. aux.deep, aux.block, #aux.block - 2 * step + 1)
  if sum == aux.total then
    at = aux.base + before
  end
end
wait = at + a - now

--@ refund
if cost >= used then
  call('DEL', key)
else
  -- The mark at which what is left ends, found as in retry.
  local keep = used - cost
  local at, stop = aux.at, nil
  local block, base, sum, wide, deep = aux.block, aux.base, aux.sum, aux.wide, aux.deep
  while (sum - aux.before) % 4503599627370496 >= keep and aux.size > aux.dead + 1 do
    call('RPOP', key)
    aux.size = aux.size - 1
    block = call('LINDEX', key, -1)
    base, sum, wide, deep = unpack('>I7I7BB', block)
  end
  local step, form = wide + deep, '>I' .. wide .. 'I' .. deep
  local last = (#block - 16) / step
  local first = aux.size == aux.dead + 1 and aux.skip + 1 or 1
  local marks = {}
  for j = 1, last do
    local t, upto = unpack(form, block, 17 + (j - 1) * step)
    if j >= first and (sum + upto - aux.before) % 4503599627370496 >= keep then
      upto = (aux.before + keep - sum) % 4503599627370496
      stop = true
    end
    marks[j] = {t, upto}
    if stop then
      break
    end
  end
  if base + marks[#marks][1] < at then
    marks[#marks + 1] = {at - base, marks[#marks][2]}
  end
  form = '>I7I' .. deep
  local parts = {pack('>I7I7BB', base, sum, 7, deep)}
  for j = 1, #marks do
    parts[j + 1] = pack(form, marks[j][1], marks[j][2])
  end
  call('LSET', key, -1, table.concat(parts))
end
