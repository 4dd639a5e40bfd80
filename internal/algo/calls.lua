-- Calls of one action about one key under one limit, one after another: holds are settled (0),
-- renewed (1; 4: and made again where they were lost) or released (2), or units are charged (3). See
-- take.lua. What is charged is written at once: it is of one instant. Beside the calls lie their
-- identities and their cost; or the cost of each, if action has the bit 128.
-- most: in parts, how much charges may use. units, span: of the holds that are renewed or released.
local err = writeowed()
if err then
  return err
end
local count, action, kind, most, unit, a, b, c, d, units, span
count, action, kind, most, unit, a, b, c, d, units, span, pos = unpack('>HBBI7I7I7I7I7I7I7I7', requests, pos + 1)
local held, one = kind >= 128, action < 128 -- one: all have one cost
if held then
  kind = kind - 128
end
if not one then
  action = action - 128
end
local key, holds, broken, unwritten
local now, used, aux
if kind ~= 5 then
  k = k + 1
  key = keys[k]
end
--> count look
local ids, costs -- of a charge, the identities mean nothing
if held and action ~= 3 then
  ids = identities(count, tailpos)
end
tailpos = tailpos + 12 * count
if one then
  costs = unpack('>I7', tail, tailpos)
  tailpos = tailpos + 7
else
  costs = {unpack('>' .. string.rep('I7', count), tail, tailpos)}
  tailpos = tailpos + 7 * count
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
local early, late, swift = 0, 0, false -- swift: settleholds dropped the records
local head, charges = place, nil -- runs follow the head of the answer; charges differ if there are any
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
  local from, known = 1, action == 3 and count or 0 -- known: how many have a record, or need none
  swift = action == 0 and values and settleholds(holds, ids, values)
  if swift then
    from, known = count + 1, 0
    local i = 1
    while i < from do
      local v, n = values[i], 1
      while i + n <= count and values[i + n] == v do
        n = n + 1
      end
      local latest = max(0, holds.latest - clock)
      if v then
        local units, whole = dropalike(holds, v, n)
        known = known + n
        if not whole then
          forget(holds, ids, values, i + n)
          recount(holds)
          from = i + n
        end
        if n > 1 then
          place = place + 1
          answers[place] = pack('>HBI7I7I7', n - 1, 1, holds.held + units, units, latest)
        end
        place = place + 1
        answers[place] = pack('>HBI7I7I7', 1, 1, holds.held, 0, max(0, holds.latest - clock))
      else
        place = place + 1
        answers[place] = pack('>HBI7I7I7', n, 0, holds.held, 0, latest)
      end
      i = i + n
    end
  elseif action == 3 then
    place = place + 1
    answers[place] = pack('>HBI7I7I7', count, 1, holds and holds.held or 0, 0, holds and max(0, holds.latest - clock) or 0)
    from = count + 1
  end
  for i = from, count do
    local id = ids[i]
    local found, had, till = findhold(holds, id)
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
    if values then
      values[i] = found
    else
      values = {[i] = found}
    end
    if found then
      known = known + 1
    end
    place = place + 1
    local said = found and 1 or (action == 1 or action == 4) and had == 0 and clock < till and 2 or 0
    answers[place] = pack('>HBI7I7I7', 1, said, holds.held, 0, max(0, holds.latest - clock))
  end
  if action == 0 or action == 3 then
    local room = max(0, floor((most - used) / unit))
    if one and costs * known <= room then
      cost = costs * known
    else
      charges = {}
      for i = 1, count do
        local charge = 0
        if action == 3 or values[i] then
          charge = min(one and costs or costs[i], room - cost)
          cost = cost + charge
        end
        charges[i] = charge
      end
    end
  else
    costs = 0
  end
  if holds and not swift then
    local done = writeholds(holds)
    --> room
  end
  if cost > 0 and not unwritten then
    --> count charge
    --> count reset
    if not unwritten then
      --> count write
    end
  end
end
if broken or unwritten then
  place = head
  answers[head] = pack('>BHI8', 6, 1, broken or unwritten)
else
  answers[head] = pack('>BHI8I7I7I7I7HH', 1, 0, count, now, before, early, late, place - head, charges and count or 1)
  place = place + 1
  answers[place] = charges and pack('>' .. string.rep('I7', count), spread(charges)) or pack('>I7', costs)
  if swift and holds.changed then
    owed[#owed + 1], owed[#owed + 2], owed[#owed + 3] = holds, head, place
  end
end
