-- Decides requests, one after another. Each is charged under all its limits or
-- under none. take.lua is the frame; what an algorithm does stands in its own
-- file, in sections that are pasted in at their names below, so that a call runs
-- no more than it needs and makes no closures.
--
-- KEYS     of each request: its penalties' records, then its asks' counts
-- ARGV[1]  the instant in µs; empty: the server's clock
-- ARGV[2]  the requests, packed (see protocol.go)
-- returns  the answers, packed
--
-- What sections share, for the ask at hand:
--   key cost kind capacity unit   of the ask; full is capacity·unit
--   a b c d                       numbers of its algorithm (see Plan.numbers)
--   state                         the string under key; false: none
--   now used aux                  set by look: the instant, what is in use, the rest
--   wait                          set by retry and reset, µs
-- A look reads and never writes: a request that is refused leaves no trace.
-- What lies further ahead of the clock than its own window is as if unused, and a
-- charge replaces it.

local call, try, unpack, pack = redis.call, redis.pcall, struct.unpack, struct.pack
local floor, ceil = math.floor, math.ceil
local given = ARGV[1] ~= ''
local clock
if given then
  clock = tonumber(ARGV[1])
else
  local t = call('TIME')
  clock = t[1] * 1000000 + t[2]
end
local requests, pos, k = ARGV[2], 1, 0
local answers = {}

while pos <= #requests do
  local penalties, asks
  penalties, asks, pos = unpack('>HH', requests, pos)
  local outcome, who, number = 0, 0, 0 -- of the answer's head
  local records, refused

  if penalties > 0 then
    records, refused = {}, {}
    for j = 1, penalties do
      local key = KEYS[k + j]
      local warn, ban, term, forget, growth, most
      warn, ban, term, forget, growth, most, pos = unpack('>I4I4I7I7I4I7', requests, pos)
      local state = try('GET', key)
      --> penalty look
    end
    k = k + penalties
  end

  local kind, penalty, cost, capacity, unit, a, b, c, d
  local now, used, aux, fits
  local all = true
  local nows, useds, auxs
  local start = pos
  if outcome == 0 then
    if asks > 1 then
      nows, useds, auxs = {}, {}, {}
    end
    for i = 1, asks do
      kind, penalty, cost, capacity, unit, a, b, c, d, pos = unpack('>BHI7I7I7I7I7I7I7', requests, pos)
      local key = KEYS[k + i]
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
      if broken then
        outcome, who, number = 6, penalties + i, broken
        break
      end
      fits = cost <= capacity and used + cost * unit <= capacity * unit
      if not fits then
        all = false
        if penalty > 0 then
          refused[penalty] = true
        end
      end
      if asks > 1 then
        nows[i], useds[i], auxs[i] = now, used, aux
      end
    end
  end

  local place = #answers + 1
  answers[place] = ''
  if outcome == 0 then
    pos = start
    for i = 1, asks do
      kind, penalty, cost, capacity, unit, a, b, c, d, pos = unpack('>BHI7I7I7I7I7I7I7', requests, pos)
      local key = KEYS[k + i]
      local full = capacity * unit
      if asks > 1 then
        now, used, aux = nows[i], useds[i], auxs[i]
        fits = cost <= capacity and used + cost * unit <= full
      end
      local retry, delay, write, wait = 0, 0, nil, 0
      if all then
        if kind == 1 then
          delay = math.min(ceil(used / a) * b, 4503599627370496)
        end
        if cost > 0 then
          if penalty > 0 and records[penalty][11] then
            call('DEL', KEYS[k - penalties + penalty])
          end
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
      elseif not fits then
        if cost > capacity then
          retry = 9007199254740991 -- never
        else
          if kind <= 1 then
            --> bucket retry
          elseif kind == 2 then
            --> fixed retry
          elseif kind == 3 then
            --> log retry
          else
            --> window retry
          end
          retry = wait
        end
      end
      if used == 0 then
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
      -- A count expires in the millisecond after it has become unused. Where the
      -- caller gives the instants, the server's clock says nothing about that.
      if write then
        if given then
          call('SET', key, write, 'PX', 86400000)
        else
          call('SET', key, write, 'PXAT', floor((now + wait) / 1000) + 1)
        end
      elseif kind == 3 and all and cost > 0 then
        if given then
          call('PEXPIRE', key, 86400000)
        else
          call('PEXPIREAT', key, floor((now + wait) / 1000) + 1)
        end
      end
      local remaining = used < full and floor((full - used) / unit) or 0
      answers[#answers + 1] = pack('>BI7I7I7I7', fits and 1 or 0, remaining, retry, wait, delay)
    end
    outcome = 1
    if not all then
      outcome = 2
      for j = 1, penalties do
        if refused[j] then
          local record, key = records[j], KEYS[k - penalties + j]
          local warn, ban, term, forget, growth, most = record[5], record[6], record[7], record[8], record[9], record[10]
          --> penalty violate
        end
      end
    end
  else
    pos = start + asks * 52
  end
  k = k + asks
  answers[place] = pack('>BHI8', outcome, who, number)
end

return table.concat(answers)
