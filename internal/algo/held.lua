-- What requests in flight hold of one key under one limit: a hash, apart from the count. Its field
-- '' is the head; each other field is the identity of a record, its random bytes first.
--
-- head    form 1 (80), units held 7, records that hold 2, tombstones 2; four instants of 7: the
--         clock from which all records count but for those that ran out; before which none has run
--         out; when the hash expires; the floor of the list; then the list: six times an instant 7
--         and a count 2. The list says how many records run out when, from the floor on, the last
--         last; 0: none. A head of more than 64 bytes makes Redis look fields up by their hash.
-- record  until 7, for how long it was made 5, units 2 or 7. Without units it is a tombstone: it was
--         released, and is not made again.
--
-- A record counts iff clock < until <= clock + 2·span. Those that ran out are dropped by the next
-- look; with given instants a second later, since the next instant may be an earlier one. By the
-- server's clock, those further ahead than that are dropped, too: the clock was set back.
--
-- The functions work on a table, which writeholds stores:
--   key, sum, n, dead, high, first, expires, floor, tills, counts   see above
--   held, count, latest   what counts: units, records, until when
--   exact                 these differ from sum, n and the list
--   records, all          records that were read (false: none), and whether these are all
--   out                   records to be written (false: dropped); lasts: until when the newest lasts

local never = 9007199254740991
local known = {} -- by key

local function unpackrecord(v)
  if #v == 14 then
    return unpack('>I7I5H', v)
  end
  return unpack('>I7I5I7', v)
end

-- list counts records that run out at an instant.
local function list(h, till, n)
  local tills, counts = h.tills, h.counts
  if till < h.floor then
    return
  end
  local i = #tills
  while i > 0 and tills[i] > till do
    i = i - 1
  end
  if tills[i] ~= till then
    i = i + 1
    table.insert(tills, i, till)
    table.insert(counts, i, 0)
  end
  counts[i] = counts[i] + n
  if counts[i] == 0 then
    table.remove(tills, i)
    table.remove(counts, i)
  elseif #tills > 6 then
    h.floor = tills[1] + 1
    table.remove(tills, 1)
    table.remove(counts, 1)
  end
end

-- recount drops what has run out, and finds what counts.
local function recount(h)
  local records = h.records
  if not h.all then
    local flat = call('HGETALL', h.key)
    for i = 1, #flat, 2 do
      if records[flat[i]] == nil then
        records[flat[i]] = flat[i + 1]
      end
    end
    records[''], h.all = nil, true
  end
  local each, limit = given or clock < h.high, given and clock - 1000000 or clock
  local held, count, latest = 0, 0, 0
  h.sum, h.n, h.dead, h.high, h.first, h.floor, h.tills, h.counts = 0, 0, 0, 0, never, 0, {}, {}
  for id, v in pairs(records) do
    if v then
      local till, span, units = unpackrecord(v)
      if till <= limit or not given and units > 0 and till > clock + 2 * span then
        records[id], h.out[id] = false, false
      else
        h.first = min(h.first, till)
        if units == 0 then
          h.dead = h.dead + 1
        else
          h.sum, h.n, h.high = h.sum + units, h.n + 1, max(h.high, till - 2 * span)
          list(h, till, 1)
          if each and clock < till and till <= clock + 2 * span then
            held, count, latest = held + units, count + 1, max(latest, till)
          end
        end
      end
    end
  end
  h.exact = each
  if each then
    h.held, h.count, h.latest = held, count, latest
  else
    h.held, h.count, h.latest = h.sum, h.n, h.tills[#h.tills] or 0
  end
end

-- readholds returns the table; or nil, and what is broken (see protocol.go) or an error. ids are
-- those whose records will be wanted; nil: none.
function readholds(key, ids)
  local h = known[key]
  if not h then
    local values = try('HMGET', key, '', spread(ids or {}))
    if values.err then
      if sub(values.err, 1, 9) ~= 'WRONGTYPE' then
        return nil, values
      end
      return nil, 6
    end
    local head, records = values[1], {}
    h = {key = key, sum = 0, n = 0, dead = 0, high = 0, first = never, expires = 0, floor = 0, tills = {}, counts = {},
      held = 0, count = 0, latest = 0, records = records, all = not head, out = {}, lasts = 0, stored = head}
    if head then
      if #head ~= 94 or byte(head) ~= 80 then
        return nil, 7
      end
      h.sum, h.n, h.dead, h.high, h.first, h.expires, h.floor = unpack('>I7HHI7I7I7I7', head, 2)
      for p = 41, 86, 9 do
        local till, n = unpack('>I7H', head, p)
        if n == 0 then
          break
        end
        h.tills[#h.tills + 1], h.counts[#h.counts + 1] = till, n
      end
      for i = 2, #values do
        records[ids[i - 1]] = values[i]
      end
      h.held, h.count, h.latest = h.sum, h.n, h.tills[#h.tills] or 0
    end
    known[key] = h
  elseif ids and not h.all then
    local values = call('HMGET', key, spread(ids))
    for i = 1, #values do
      h.records[ids[i]] = values[i]
    end
  end
  if not h.all and (clock >= h.first or clock < h.high) then
    recount(h)
    if not given then
      writeholds(h) -- ignoring errors: it is only what ran out
    end
  end
  return h
end

-- findhold returns whether the record of an identity counts; then, if it has one, its units and
-- until when.
function findhold(h, id)
  local v = h.records[id]
  if not v then
    return false
  end
  local till, span, units = unpackrecord(v)
  return units > 0 and clock < till and till <= clock + 2 * span, units, till
end

-- addholds makes records of identities that have none. units 0: tombstones.
function addholds(h, ids, units, till, span)
  local v, records, out, added = pack(units < 65536 and '>I7I5H' or '>I7I5I7', till, span, units), h.records, h.out, #ids
  for i = 1, added do
    records[ids[i]], out[ids[i]] = v, v
  end
  h.first, h.lasts = min(h.first, till), max(h.lasts, till)
  if units == 0 then
    h.dead = h.dead + added
    return
  end
  h.sum, h.n, h.high = h.sum + units * added, h.n + added, max(h.high, till - 2 * span)
  h.held, h.count, h.latest = h.held + units * added, h.count + added, max(h.latest, till)
  list(h, till, added)
end

-- dropholds drops the record that findhold found.
function dropholds(h, id, units, till)
  h.records[id], h.out[id] = false, false
  if units == 0 then
    h.dead = h.dead - 1
    return
  end
  h.sum, h.n = h.sum - units, h.n - 1
  list(h, till, -1)
  if h.exact or h.n > 0 and #h.tills == 0 then
    recount(h)
  else
    h.held, h.count, h.latest = h.sum, h.n, h.tills[#h.tills] or 0
  end
end

-- writeholds stores what changed, and returns the reply of the first write; nil: there was none.
function writeholds(h)
  local set, gone = {'HSET', h.key, '', ''}, {'HDEL', h.key}
  for id, v in pairs(h.out) do
    if v then
      set[#set + 1], set[#set + 2] = id, v
    else
      gone[#gone + 1] = id
    end
  end
  if not next(h.out) then
    return
  end
  h.out = {}
  if h.n + h.dead == 0 then
    local stored = h.stored
    known[h.key] = nil
    return stored and try('DEL', h.key)
  end
  local extend = not given and h.lasts > h.expires
  if extend then
    h.expires = h.lasts + floor((h.lasts - clock) / 2) -- so that not every hold extends it
  end
  local t, c = h.tills, h.counts
  set[4] = pack('>BI7HHI7I7I7I7I7HI7HI7HI7HI7HI7H', 80, h.sum, h.n, h.dead, h.high, h.first, h.expires, h.floor, t[1] or 0, c[1] or 0,
    t[2] or 0, c[2] or 0, t[3] or 0, c[3] or 0, t[4] or 0, c[4] or 0, t[5] or 0, c[5] or 0, t[6] or 0, c[6] or 0)
  local done = try(spread(set))
  if type(done) == 'table' and done.err then
    known[h.key] = nil
    return done
  end
  h.stored = true
  if #gone > 2 then
    call(spread(gone))
  end
  if given then
    call('PEXPIRE', h.key, 86400000)
  elseif extend then
    call('PEXPIREAT', h.key, floor(h.expires / 1000) + 1)
  end
  return done
end
