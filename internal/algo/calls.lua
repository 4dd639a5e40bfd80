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
local actions, ids, costs, several, spans = {}, {}, {}, {}, {}
for i = 1, count do
  actions[i], ids[i], costs[i], several[i], spans[i], tailpos = unpack('>Bc12I7I7I7', tail, tailpos)
end
if held then
  k = k + 1
  local why
  holds, why = readholds(keys[k], ids)
  if type(why) == 'table' then
    return why
  end
  broken = broken or why
end

local cost, write, wait = 0, nil, 0
local parts = {''}
if not broken then
  local early, late = 0, 0 -- the reset before and after a charge, of which buckets and fixed windows have none
  if kind == 3 then
    if used > 0 then
      --> log reset
    end
    early, late = wait, a
  elseif kind == 4 then
    if used > 0 then
      --> window reset
    end
    early, late = wait, (floor(floor(now / c) / a) + b + 1) * a * c - now
  end
  for i = 1, count do
    local action, id, units, span = actions[i], ids[i], several[i], spans[i]
    local counts, had, till
    if action ~= 3 then
      counts, had, till = findhold(holds, id)
    end
    local found, charge = action == 3 or counts, 0
    if action == 0 or action == 3 then
      if found then
        charge = max(0, min(costs[i], floor((most - used - cost * unit) / unit)))
        cost = cost + charge
      end
      if counts then
        dropholds(holds, id, had, till)
      end
    elseif action == 2 then
      if had then
        dropholds(holds, id, had, till)
      end
      if holds.dead < 8192 then
        addholds(holds, {id}, 0, clock + 2 * span, span)
      end
    elseif found or action == 4 and units > 0 and had ~= 0
      and holds.count < 4096 and holds.held <= 4503599627370495 - units then
      if had then
        dropholds(holds, id, had, till)
      end
      addholds(holds, {id}, found and had or units, clock + span, span)
    end
    parts[i + 1] = pack('>BI7I7I7I7I7I7', found and 1 or 0, charge, now, used + cost * unit,
      cost > 0 and late or early, holds and holds.held or 0, holds and max(0, holds.latest - clock) or 0)
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
  end
end
if broken or unwritten then
  answers[place] = pack('>BHI8', 6, 1, broken or unwritten)
else
  parts[1] = pack('>BHI8', 1, 0, count)
  answers[place] = table.concat(parts)
end
