-- A request of any asks and penalties (take.lua).
local count, penalties, asks
count, penalties, asks, pos = unpack('>HHH', requests, pos + 1)
local outcome, who, number = 0, 0, 0 -- of the answer's head
local records, refused
if writeowed and (asks > 1 or penalties > 0) then
  local err = writeowed()
  if err then
    return err
  end
end

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
-- Of an ask whose limit is held: what an admitted request does (0: it is charged, 1: it holds
-- units, 2 and 3: neither), how long a hold lasts, and its holds.
local way, span, holds, heldby
local key, heldkey
local holding -- whether an ask holds units
local unwritten
local start, asked = pos, k
-- While a ban runs, the limits are looked at, too: to say when they would allow.
if asks > 1 then
  nows, useds, auxs, heldby = {}, {}, {}, {}
end
for i = 1, asks do
  --> ask
  local broken
  aux, holds = nil, nil
  holding = holding or way == 1
  if outcome ~= 6 then -- else only the place of the next request is wanted
    --> count look
  end
  if way and outcome ~= 6 then
    local why
    holds, why = readholds(heldkey)
    if type(why) == 'table' then
      return why
    end
    broken = broken or why
    holds = holds or {held = 0, latest = 0, count = 0} -- for the waits beside a ban
  end
  if outcome == 6 then
    -- decided
  elseif broken then
    if outcome == 0 or broken >= outside then
      outcome, who, number = 6, penalties + i, broken
    end
  elseif cost > capacity or used + cost * unit > full then
    took = 0
    if penalty > 0 then
      refused[penalty] = true
    end
  elseif holds then
    -- What others hold is no reason for a violation.
    local free = floor((full - used) / unit) - holds.held
    if cost > free or way > 0 and holds.count >= 4096 then
      took = 0
    elseif way < 2 and cost * took > free then
      took = floor(free / cost)
    end
    if way == 1 then
      took = min(took, 4096 - holds.count)
    end
  elseif used + cost * unit * took > full then
    took = floor((full - used) / (cost * unit))
  end
  if asks > 1 and outcome ~= 6 then
    nows[i], useds[i], auxs[i], heldby[i] = now, used, aux, holds
  end
end

local head = place
if outcome ~= 6 then
  local ids -- of those that are admitted and hold
  if asks > 1 then
    pos, k = start, asked
  end
  for i = 1, asks do
    if asks > 1 then
      --> ask
      now, used, aux, holds = nows[i], useds[i], auxs[i], heldby[i]
    end
    local before, fits = used, cost <= capacity and used + cost * unit <= full
    local retry, write, wait = 0, nil, 0
    local held, latest, several
    if holds then
      held, latest, several = holds.held, max(0, holds.latest - clock), holds.count
    end
    local charged = took > 0 and cost > 0 and (not way or way == 0)
    if took > 0 and cost > 0 and penalty > 0 and way ~= 2 and records[penalty][11] then
      call('DEL', keys[asked - penalties + penalty])
    end
    if charged or took > 0 and way == 1 then
      if way == 1 then
        ids = ids or identities(took, tailpos)
        addholds(holds, ids, cost, clock + span, span)
        if asks == 1 and penalties == 0 then
          owed[#owed + 1], owed[#owed + 2], owed[#owed + 3] = holds, head, head + 1
        else
          local done = writeholds(holds)
          --> room
        end
      else
        local cost = cost * took
        --> count charge
      end
    elseif not fits and (kind == 3 or kind == 4) then
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
    if used == 0 or not write and (kind <= 2 or kind == 6) then
      wait = 0
    else
      --> count reset
    end
    if unwritten then
      wait = 0
    elseif write or kind == 3 and charged then
      --> count write
    end
    if unwritten then
      if outcome ~= 6 then
        outcome, who, number = 6, penalties + i, unwritten
      end
      took = 0 -- the others are not charged
    elseif holds then
      answers[head + i] = pack('>I7I7I7I7I7I7H', now, (kind <= 2 or kind == 6) and before or used, retry, wait, held, latest, several)
    elseif kind <= 2 or kind == 6 then
      answers[head + i] = pack('>I7I7', now, before)
    else
      local remaining = used < full and floor((full - used) / unit) or 0
      answers[head + i] = pack('>BI7I7I7I7', fits and 1 or 0, remaining, retry, wait, 0)
    end
  end
  if outcome == 0 then
    outcome, number = took < count and 2 or 1, took
  end
  if outcome == 2 then
    for j = 1, penalties do
      if refused[j] then
        local record, key = records[j], keys[asked - penalties + j]
        local warn, ban, term, forget, growth, most = record[5], record[6], record[7], record[8], record[9], record[10]
        --> penalty violate
      end
    end
  end
end
if holding then
  tailpos = tailpos + count * 12
end
answers[head] = pack('>BHI8', outcome, who, number)
place = outcome == 6 and head or head + asks
