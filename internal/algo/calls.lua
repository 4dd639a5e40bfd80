-- Calls about one key under one limit, one after another: holds are settled, renewed or released,
-- and units are charged (take.lua). The charges are written as one: they are of one instant.
-- most: in parts, how much charges may use.
local count, kind, most, unit, a, b, c, d
count, kind, most, unit, a, b, c, d, pos = unpack('>HBI7I7I7I7I7I7', requests, pos + 1)
local held = kind >= 128
if held then
  kind = kind - 128
end
local key, holds, broken, unwritten
local now, used, aux = clock, 0, nil
if kind ~= 5 then
  k = k + 1
  key = keys[k]
end
if kind == 5 then
  -- no count
elseif kind == 3 then
  --> log look
else
  local state = try('GET', key)
  if not state then
    -- unused
  elseif type(state) == 'table' then
    --> wrongtype
  elseif kind <= 1 then
    --> bucket look
  elseif kind == 2 then
    --> fixed look
  else
    --> window look
  end
end
if held then
  k = k + 1
  local why
  holds, why = readholds(keys[k])
  if type(why) == 'table' then
    return why
  end
  broken = broken or why
end

local early, late = 0, 0 -- the reset before and after a charge
local cost, write, wait = 0, nil, 0
local parts = {''}
if not broken then
  if used > 0 then
    if kind == 3 then
      --> log reset
    elseif kind == 4 then
      --> window reset
    end
    early = wait
  end
  for i = 1, count do
    local action, id, asked, units, span = unpack('>Bc12I7I7I7', tail, tailpos + (i - 1) * 34)
    local record = action ~= 3 and findhold(holds, id)
    local found, charge = action == 3 or record and record.counts, 0
    if (action == 0 or action == 3) and found then
      local free = floor((most - used - cost * unit) / unit)
      charge = max(0, min(asked, free))
      cost = cost + charge
    end
    if action == 0 and found then
      dropholds(holds, record)
    elseif action == 1 or action == 4 then -- renews; 4: and makes again what was lost
      if found then
        units = record.units
        dropholds(holds, record)
        addholds(holds, id, units, clock + span, span)
      elseif action == 4 and units > 0 and not (record and record.units == 0)
        and holds.count < 4096 and holds.held <= 4503599627370495 - units then
        if record then
          dropholds(holds, record)
        end
        addholds(holds, id, units, clock + span, span)
      end
    elseif action == 2 then
      if record then
        dropholds(holds, record)
      end
      if holds.dead < 8192 then
        addholds(holds, id, 0, clock + 2 * span, span)
      end
    end
    parts[i + 1] = {found, charge, used + cost * unit, cost, holds and holds.held or 0, holds and max(0, holds.latest - clock) or 0}
  end
  if holds then
    local done = writeholds(holds)
    --> room
  end
  if cost > 0 and not unwritten then
    if kind <= 1 then
      --> bucket charge
      --> bucket reset
    elseif kind == 2 then
      --> fixed charge
      --> fixed reset
    elseif kind == 3 then
      --> log charge
      --> log reset
    else
      --> window charge
      --> window reset
    end
    if unwritten then
      -- nothing was written
    elseif write then
      --> expire
    elseif given then
      call('PEXPIRE', key, 86400000)
    else
      call('PEXPIREAT', key, floor((now + wait) / 1000) + 1)
    end
    late = wait
  end
end
tailpos = tailpos + count * 34
if broken or unwritten then
  answers[place] = pack('>BHI8', 6, 1, broken or unwritten)
else
  parts[1] = pack('>BHI8', 1, 0, count)
  for i = 2, count + 1 do
    local p = parts[i]
    parts[i] = pack('>BI7I7I7I7I7I7', p[1] and 1 or 0, p[2], now, p[3], p[4] > 0 and late or early, p[5], p[6])
  end
  answers[place] = table.concat(parts)
end
