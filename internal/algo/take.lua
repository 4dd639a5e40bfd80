-- Decides requests, one after another. Each is charged under all its limits or
-- under none. take.lua is the frame; what an algorithm does stands in its own
-- file, in sections that are pasted in at their names below, so that a call runs
-- no more than it needs and makes no closures.
--
-- KEYS     of each request: its penalties' records, then of each ask its count, and its holds
--          where its limit is held; one that is in flight has holds alone
-- ARGV[1]  the instant in µs; empty: the server's clock
-- ARGV[2]  the requests, packed (see protocol.go)
-- ARGV[3]  if requests hold, or calls are about holds: the identities and operations of these
-- returns  the answers, packed
--
-- A request that stands for several identical ones, its count, is looked at and
-- charged once, for as many as fit. Buckets and fixed windows answer what they saw;
-- verdicts follow from that (Plan.Settle).
--
-- What sections share, for the ask at hand:
--   key cost kind capacity unit   of the ask; full is capacity·unit, or less (see Plan.Within)
--   a b c d                       numbers of its algorithm (see Plan.numbers)
--   state                         the string under key; false: none
--   now used aux                  set by look: the instant, what is in use, the rest
--   wait                          set by retry and reset, µs
-- A look reads and never writes: a request that is refused leaves no trace.
-- What lies further ahead of the clock than its own window is as if unused, and a
-- charge replaces it.

local spread = unpack
local call, try, unpack, pack, byte = redis.call, redis.pcall, struct.unpack, struct.pack, string.byte
local floor, ceil, min, max, sub = math.floor, math.ceil, math.min, math.max, string.sub
local given = ARGV[1] ~= ''
local clock
if given then
  clock = tonumber(ARGV[1])
else
  local t = call('TIME')
  clock = t[1] * 1000000 + t[2]
end
local keys, requests, pos, k, place = KEYS, ARGV[2], 1, 0, 0
local size = #requests
local answers = {} -- in parts; place: the last one
local kind, count, cost, capacity, unit, a, b, c, d -- of the last plain request
local outside = 4503599627370496 -- see calendar.lua
local tail, tailpos = ARGV[3], 1
local identities, readholds, findhold, addholds, dropholds, settleholds, dropalike, forget, recount, writeholds, writeowed
local owed -- holds to be written, each followed by the places of the first and last part of the answer that says so
if tail then
  --> held
end

while pos <= size do
  local form = byte(requests, pos)
  place = place + 1
  if form <= 6 then
    if form == 3 then
      count, pos = unpack('>H', requests, pos + 1)
    else
      kind = form
      count, cost, capacity, unit, a, b, c, d, pos = unpack('>HI7I7I7I7I7I7I7', requests, pos + 1)
    end
    k = k + 1
    local key = keys[k]
    local state = try('GET', key)
    local now, used, aux, broken = clock, 0, nil, nil
    if not state and kind ~= 6 then
      -- unused
    elseif type(state) == 'table' then
      --> wrongtype
    elseif kind <= 1 then
      --> bucket look
    elseif kind == 2 then
      --> fixed look
    else
      --> calendar look
    end
    if broken then
      answers[place] = pack('>BHI8', 6, 1, broken)
    else
      local before, full, took, unwritten = used, capacity * unit, 0, nil
      if cost <= capacity and used + cost * unit <= full then
        took = count
        if used + cost * unit * count > full then
          took = floor((full - used) / (cost * unit))
        end
        if cost > 0 then
          local cost, write, wait = cost * took, nil, 0
          if kind <= 1 then
            --> bucket charge
            --> bucket reset
          elseif kind == 2 then
            --> fixed charge
            --> fixed reset
          else
            --> calendar charge
            --> calendar reset
          end
          --> expire
        end
      end
      if unwritten then
        answers[place] = pack('>BHI8', 6, 1, unwritten)
      else
        answers[place] = pack('>BHI8I7I7', took == count and 1 or 2, 0, took, now, before)
      end
    end
  elseif form == 255 then
    --> whole
  else
    --> calls
  end
end

if writeowed then
  local err = writeowed()
  if err then
    return err
  end
end
if place == 1 then
  return answers[1]
end
return table.concat(answers, '', 1, place)
