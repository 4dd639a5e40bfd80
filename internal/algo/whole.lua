-- A request of any asks and penalties (take.lua).
local count, penalties, asks
count, penalties, asks, pos = unpack('>HHH', requests, pos + 1)
local outcome, who, number = 0, 0, 0 -- of the answer's head
local records, refused

if penalties > 0 then
  records, refused = {}, {}
  for j = 1, penalties do
    local key = keys[k + j]
    local warn, ban, term, forget, growth, most
    warn, ban, term, forget, growth, most, pos = unpack('>I4I4I7I7I4I7', requests, pos)
    local state = try('GET', key)
    --> penalty look
  end
  k = k + penalties
end

local kind, penalty, full, cost, capacity, unit, a, b, c, d -- full: in parts, how much may be in use
local now, used, aux
local took = outcome == 0 and count or 0 -- how many are admitted
local nows, useds, auxs
local unwritten
local start = pos
-- While a ban runs, the limits are looked at, too: to say when they would allow.
if outcome ~= 6 then
  if asks > 1 then
    nows, useds, auxs = {}, {}, {}
  end
  for i = 1, asks do
    kind, penalty, full, cost, capacity, unit, a, b, c, d, pos = unpack('>BHI7I7I7I7I7I7I7I7', requests, pos)
    local key = keys[k + i]
    local broken
    aux = nil
    if kind == 3 then
      --> log look
    else
      local state = try('GET', key)
      now, used = clock, 0
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
    if broken and outcome == 0 then
      outcome, who, number = 6, penalties + i, broken
      break
    end
    if cost > capacity or used + cost * unit > full then
      took = 0
      if penalty > 0 then
        refused[penalty] = true
      end
    elseif used + cost * unit * took > full then
      took = floor((full - used) / (cost * unit))
    end
    if asks > 1 then
      nows[i], useds[i], auxs[i] = now, used, aux
    end
  end
end

local parts = {''}
if outcome ~= 6 then
  pos = start
  for i = 1, asks do
    kind, penalty, full, cost, capacity, unit, a, b, c, d, pos = unpack('>BHI7I7I7I7I7I7I7I7', requests, pos)
    local key = keys[k + i]
    if asks > 1 then
      now, used, aux = nows[i], useds[i], auxs[i]
    end
    local before, fits = used, cost <= capacity and used + cost * unit <= full
    local retry, write, wait = 0, nil, 0
    if took > 0 then
      if cost > 0 then
        if penalty > 0 and records[penalty][11] then
          call('DEL', keys[k - penalties + penalty])
        end
        local cost = cost * took
        if kind <= 1 then
          --> bucket charge
        elseif kind == 2 then
          --> fixed charge
        elseif kind == 3 then
          --> log charge
        else
          --> window charge
        end
      end
    elseif not fits and kind >= 3 then
      if cost > capacity then
        retry = 9007199254740991 -- never
      else
        if kind == 3 then
          --> log retry
        else
          --> window retry
        end
        retry = wait
      end
    end
    if used == 0 or kind <= 2 and not write then
      wait = 0
    elseif kind <= 1 then
      --> bucket reset
    elseif kind == 2 then
      --> fixed reset
    elseif kind == 3 then
      --> log reset
    else
      --> window reset
    end
    if unwritten then
      wait = 0
    elseif write then
      --> expire
    elseif kind == 3 and took > 0 and cost > 0 then
      if given then
        call('PEXPIRE', key, 86400000)
      else
        call('PEXPIREAT', key, floor((now + wait) / 1000) + 1)
      end
    end
    if unwritten then
      outcome, who, number, parts = 6, penalties + i, unwritten, {''}
      pos = start + asks * 59
      break
    end
    if kind <= 2 then
      parts[i + 1] = pack('>I7I7', now, before)
    else
      local remaining = used < full and floor((full - used) / unit) or 0
      parts[i + 1] = pack('>BI7I7I7I7', fits and 1 or 0, remaining, retry, wait, 0)
    end
  end
  if outcome == 0 then
    outcome, number = took < count and 2 or 1, took
  end
  if outcome == 2 then
    for j = 1, penalties do
      if refused[j] then
        local record, key = records[j], keys[k - penalties + j]
        local warn, ban, term, forget, growth, most = record[5], record[6], record[7], record[8], record[9], record[10]
        --> penalty violate
      end
    end
  end
else
  pos = start + asks * 59
end
k = k + asks
parts[1] = pack('>BHI8', outcome, who, number)
answers[place] = table.concat(parts)
