-- Calls of one action about one key under one limit, one after another: holds are settled (0),
-- renewed (1; 4: and made again where they were lost) or released (2), or units are charged (3). See
-- take.lua. What is charged is written at once: it is of one instant.
-- most: in parts, how much charges may use. units, span: of the holds that are renewed or released.
local err = writeowed()
if err then
  return err
end
local count, action, kind, most, unit, a, b, c, d, units, span
count, action, kind, most, unit, a, b, c, d, units, span, pos = unpack('>HBBI7I7I7I7I7I7I7I7', requests, pos + 1)
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
  if not state and kind ~= 6 then
    -- unused
  elseif type(state) == 'table' then
    --> wrongtype
  elseif kind <= 1 then
    --> bucket look
  elseif kind == 2 then
    --> fixed look
  elseif kind == 6 then
    --> calendar look
  else
    --> window look
  end
end
local ids, charges = {}, tailpos -- of a charge, the identities mean nothing
for i = 1, count do
  ids[i] = sub(tail, tailpos, tailpos + 11)
  tailpos = tailpos + 19
end
local values
if held then
  k = k + 1
  holds, values = readholds(keys[k], action ~= 3 and ids)
  if not holds then
    if type(values) == 'table' then
      return values
    end
    broken = broken or values
  end
end

local cost, write, wait, before = 0, nil, 0, used
local parts, early, late = {''}, 0, 0
if not broken then
  -- The reset before and after a charge: that of a bucket or a fixed window follows from what is used.
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
  if values and action ~= 0 then
    forget(holds, ids, values, 1)
  end
  local fast = action == 0 and values and settleholds(holds, ids, values)
  for i = 1, count do
    local found, charge, id = action == 3, 0, ids[i]
    if fast then
      fast, found = dropnext(holds, ids, values, i)
    elseif action ~= 3 then
      local had, till
      found, had, till = findhold(holds, id)
      if action == 0 then
        if found then
          dropholds(holds, id, had, till)
        end
      elseif action == 2 then
        if had then
          dropholds(holds, id, had, till)
        end
        if holds.dead < 8192 then
          addholds(holds, {id}, 0, clock + 2 * span, span)
          holds.records[id] = pack('>I7I5I7', clock + 2 * span, span, 0)
        end
      elseif found or action == 4 and units > 0 and had ~= 0
        and holds.count < 4096 and holds.held <= 4503599627370495 - units then
        if had then
          dropholds(holds, id, had, till)
        end
        addholds(holds, {id}, found and had or units, clock + span, span)
        holds.records[id] = pack('>I7I5I7', clock + span, span, found and had or units) -- it may be named again
      end
    end
    if found and (action == 0 or action == 3) then
      charge = unpack('>I7', tail, charges + i * 19 - 7)
      if charge > 0 then
        charge = max(0, min(charge, floor((most - used - cost * unit) / unit)))
        cost = cost + charge
      end
    end
    if holds then
      parts[i + 1] = pack('>BI7I7I7', found and 1 or 0, charge, holds.held, max(0, holds.latest - clock))
    else
      parts[i + 1] = pack('>BI7I7I7', 1, charge, 0, 0)
    end
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
    elseif kind == 6 then
      --> calendar charge
      --> calendar reset
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
  parts[1] = pack('>BHI8I7I7I7I7', 1, 0, count, now, before, early, late)
  answers[place] = table.concat(parts)
end
