-- What requests in flight hold of one key under one limit: a hash, apart from the count. Its field
-- '' is the head; a field of 12 bytes is the identity of a record, its random bytes first; a field of
-- 1 byte is a part of the agenda.
--
-- head    form 1 (80), units held 7, records that hold 2, tombstones 2; five instants of 7: the
--         clock from which all records count but for those that ran out; before which none has run
--         out; when the hash expires; the floor of the list; the end of the agenda; then the place 2
--         of the agenda's next entry, from 1 (0: there is no agenda); then the list: five times an
--         instant 7 and a count 2. The list says how many records run out when, from the floor on, the
--         last last; 0: none. A head of more than 64 bytes makes Redis look fields up by their hash.
-- agenda  entries of 19, 16 in a field, which are in order: until 7, identity 12. From its place on it
--         names every record that runs out before its end, so that a look that finds that records have
--         run out reads these alone. An entry whose record was settled or renewed is passed over.
--         Where holds are many, one of 8 is named: so a whole read comes once in so many run-outs.
-- record  until 7, for how long it was made 5, units 2 or 7. Without units it is a tombstone: it was
--         released, and is not made again.
--
-- A record counts iff clock < until <= clock + 2·span. Those that ran out are dropped by the next
-- look; with given instants a second later, since the next instant may be an earlier one. By the
-- server's clock, those further ahead than that are dropped, too: the clock was set back.
--
-- Only with given instants can more units count than fit into any limit: an earlier instant, at which
-- what ran out counts again. Then 2^52 are held, and the head says that each look must read all records.
--
-- The functions work on a table, which writeholds stores:
--   key, sum, n, dead, high, first, expires, floor, final, place, tills, counts   see above
--   held, count, latest   what counts: units, records, until when
--   exact                 these differ from sum, n and the list
--   records, all          records that were read for the group at hand (false: none); whether these are all
--   set, sets, out        what to write and how many words, and records to drop; changed: or another number
--   lasts                 until when the newest record lasts

local never, mostheld = 9007199254740991, 4503599627370496
local known = {} -- by key
local char = string.char
owed = {}

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
  elseif #tills > 5 then
    h.floor = tills[1] + 1
    table.remove(tills, 1)
    table.remove(counts, 1)
  end
end

-- announce writes the agenda: of n records, their identities and until when, in any order.
local function announce(h, ids, tills, n)
  local sorted, byinstant, entries = {}, {}, {}
  for i = 1, n do
    sorted[i] = tills[i]
  end
  table.sort(sorted)
  local final = sorted[floor(n / 8) + 1]
  for i = 1, n do
    local till = tills[i]
    if till < final then
      local same = byinstant[till]
      if same then
        same[#same + 1] = ids[i]
      else
        byinstant[till] = {ids[i]}
      end
    end
  end
  while sorted[#entries + 1] < final do
    local till = sorted[#entries + 1]
    local instant = pack('>I7', till)
    for _, id in ipairs(byinstant[till]) do
      entries[#entries + 1] = instant .. id
    end
  end
  for i = 1, #entries, 16 do
    local field = char((i + 15) / 16)
    h.set[h.sets + 1], h.set[h.sets + 2] = field, table.concat(entries, '', i, min(i + 15, #entries))
    h.sets, h.out[field] = h.sets + 2, nil
  end
  h.final, h.place = final, 1
end

-- recount drops what has run out, and finds what counts.
function recount(h)
  local records, ids, instants, n = h.records, nil, {}, 0
  if not h.all then
    local flat = call('HGETALL', h.key)
    for i = 1, #flat, 2 do
      local field = flat[i]
      if #field == 1 then
        h.out[field] = true
      elseif records[field] == nil then
        records[field] = flat[i + 1]
      end
    end
    records[''], h.all = nil, true
    h.final, h.place = 0, 0
    ids = not given and #flat >= 128 and {}
  end
  local each, limit = given or clock < h.high, given and clock - 1000000 or clock
  local held, count, latest = 0, 0, 0
  h.sum, h.n, h.dead, h.high, h.first, h.floor, h.tills, h.counts = 0, 0, 0, 0, never, 0, {}, {}
  for id, v in pairs(records) do
    if v then
      local till, span, units = unpackrecord(v)
      if till <= limit or not given and units > 0 and till > clock + 2 * span then
        records[id], h.out[id] = false, true
      else
        h.first = min(h.first, till)
        if ids then
          n = n + 1
          ids[n], instants[n] = id, till
        end
        if units == 0 then
          h.dead = h.dead + 1
        else
          h.sum, h.n, h.high = h.sum + units, h.n + 1, max(h.high, till - 2 * span)
          list(h, till, 1)
          if each and clock < till and till <= clock + 2 * span then
            held, count, latest = min(held + units, mostheld), count + 1, max(latest, till)
          end
        end
      end
    end
  end
  if n >= 64 then
    announce(h, ids, instants, n)
  end
  h.exact, h.changed = each, true
  if each then
    h.held, h.count, h.latest = held, count, latest
  else
    h.held, h.count, h.latest = h.sum, h.n, h.tills[#h.tills] or 0
  end
end

-- pass drops what has run out by the agenda.
local function pass(h)
  local due, place, part, field = {}, h.place, nil, nil
  h.first, h.changed = h.final, true
  while true do
    local from = (place - 1) % 16 * 19 + 1
    if not part then
      field = char(floor((place + 15) / 16))
      part = call('HGET', h.key, field)
    end
    local till = part and from < #part and unpack('>I7', part, from)
    if not till then
      break
    elseif till > clock then
      h.first = min(till, h.final)
      break
    end
    due[#due + 1] = sub(part, from + 7, from + 18)
    place = place + 1
    if from == 286 then
      part, h.out[field] = nil, true
    end
  end
  h.place = place
  local values = #due > 0 and call('HMGET', h.key, spread(due)) or due
  for i = 1, #due do
    if values[i] then
      local till, _, units = unpackrecord(values[i])
      if till <= clock then
        h.out[due[i]] = true
        if units == 0 then
          h.dead = h.dead - 1
        else
          h.sum, h.n = h.sum - units, h.n - 1
          list(h, till, -1)
        end
      end
    end
  end
  if h.n > 0 and #h.tills == 0 then
    recount(h)
  else
    h.held, h.count, h.latest = h.sum, h.n, h.tills[#h.tills] or 0
  end
end

-- readholds returns the table; or nil, and what is broken (see protocol.go) or an error. ids are
-- those whose records will be wanted: then it also returns these, unless all were read.
function readholds(key, ids)
  local h, values, records = known[key], nil, nil
  if not h then
    local head
    if ids then
      values = try('HMGET', key, '', spread(ids))
      head = values[1]
    else
      head = try('HGET', key, '')
    end
    local err = values and values.err or type(head) == 'table' and head.err
    if err then
      if sub(err, 1, 9) ~= 'WRONGTYPE' then
        return nil, values or head
      end
      return nil, 6
    end
    h = {key = key, sum = 0, n = 0, dead = 0, high = 0, first = never, expires = 0, floor = 0, final = 0, place = 0, tills = {}, counts = {},
      held = 0, count = 0, latest = 0, records = {}, all = not head, out = {}, set = {'HSET', key, '', ''}, sets = 4, lasts = 0, stored = head}
    if head then
      if #head ~= 94 or byte(head) ~= 80 then
        return nil, 7
      end
      local t, c = h.tills, h.counts
      h.sum, h.n, h.dead, h.high, h.first, h.expires, h.floor, h.final, h.place, t[1], c[1], t[2], c[2], t[3], c[3], t[4], c[4], t[5], c[5]
        = unpack('>I7HHI7I7I7I7I7HI7HI7HI7HI7HI7H', head, 2)
      for i = 5, 1, -1 do
        if c[i] > 0 then
          break
        end
        t[i], c[i] = nil, nil
      end
      h.held, h.count, h.latest = h.sum, h.n, t[#t] or 0
    end
    known[key] = h
    if ids then
      table.remove(values, 1)
    end
  elseif ids and not h.all then
    values = call('HMGET', key, spread(ids))
  end
  if not h.all and (clock >= h.first or clock < h.high) then
    if given or clock < h.high or clock >= h.final or h.place == 0 then
      recount(h)
    else
      pass(h)
      for i = 1, values and #values or 0 do
        if values[i] and unpack('>I7', values[i]) <= clock then
          values[i] = false
        end
      end
    end
    if not given then
      writeholds(h) -- ignoring errors: it is only what ran out
    end
  end
  if h.all then
    values = nil
  end
  return h, values
end

-- settleholds drops the records of identities at once: all count, since not all were read. It returns
-- false where findhold has to tell them apart: one is named twice, or there are tombstones.
function settleholds(h, ids, values)
  local found = 0
  if h.dead > 0 then
    forget(h, ids, values, 1)
    return false
  end
  for i = 1, #values do
    if values[i] then
      found = found + 1
    end
  end
  if found == 0 or call('HDEL', h.key, spread(ids)) == found then
    return true
  end
  forget(h, ids, values, 1)
  return false
end

-- forget has the records of identities from a place on be found by findhold.
function forget(h, ids, values, from)
  for i = from, #values do
    if h.records[ids[i]] == nil then
      h.records[ids[i]] = values[i]
    end
  end
end

-- dropalike is dropholds for n records of one value that settleholds dropped. It returns their units, and
-- whether the head still knows what counts; if not, recount has to find it.
function dropalike(h, v, n)
  local till, _, units = unpackrecord(v)
  h.sum, h.n, h.changed = h.sum - units * n, h.n - n, true
  list(h, till, -n)
  h.held, h.count, h.latest = h.sum, h.n, h.tills[#h.tills] or 0
  return units, h.n == 0 or h.latest > 0
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

-- identities returns those of n requests or calls that lie beside them, from a position on.
function identities(n, at)
  if n > 1000 then
    local ids = {}
    for i = 1, n do
      ids[i] = sub(tail, at + i * 12 - 12, at + i * 12 - 1)
    end
    return ids
  end
  local ids = {unpack(string.rep('c12', n), tail, at)}
  ids[n + 1] = nil -- the position behind them
  return ids
end

-- addholds makes records of identities, in place of those that dropholds dropped. units 0: tombstones.
function addholds(h, ids, units, till, span)
  local v, set, at, added = pack(units < 65536 and '>I7I5H' or '>I7I5I7', till, span, units), h.set, h.sets, #ids
  for i = 1, added do
    set[at + 1], set[at + 2] = ids[i], v
    at = at + 2
  end
  h.sets = at
  if h.all or next(h.out) then
    for i = 1, added do
      h.records[ids[i]], h.out[ids[i]] = v, nil
    end
  end
  h.first, h.final, h.lasts = min(h.first, till), min(h.final, till), max(h.lasts, till)
  if units == 0 then
    h.dead = h.dead + added
    return
  end
  h.sum, h.n, h.high = h.sum + units * added, h.n + added, max(h.high, till - 2 * span)
  h.held, h.count, h.latest = min(h.held + units * added, mostheld), h.count + added, max(h.latest, till)
  list(h, till, added)
end

-- dropholds drops the record that findhold found.
function dropholds(h, id, units, till)
  h.records[id], h.out[id] = false, true
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
  local set, gone = h.set, nil
  if next(h.out) then
    gone = {'HDEL', h.key}
    for id in pairs(h.out) do
      gone[#gone + 1] = id
    end
    h.out = {}
  elseif h.sets == 4 and not h.changed then
    h.records = h.all and h.records or {}
    return
  end
  h.set, h.sets, h.changed = {'HSET', h.key, '', ''}, 4, nil
  if not h.all then
    h.records = {}
  end
  if h.n + h.dead == 0 then
    local stored = h.stored
    h.all, h.stored, h.high, h.first, h.expires, h.floor, h.final, h.place, h.lasts = true, nil, 0, never, 0, 0, 0, 0, 0
    return stored and try('DEL', h.key)
  end
  local extend = not given and h.lasts > h.expires
  if extend then
    h.expires = h.lasts + floor((h.lasts - clock) / 2) -- so that not every hold extends it
  end
  local t, c = h.tills, h.counts
  if h.sum > mostheld then
    h.sum, h.first = mostheld, 0
  end
  set[4] = pack('>BI7HHI7I7I7I7I7HI7HI7HI7HI7HI7H', 80, h.sum, h.n, h.dead, h.high, h.first, h.expires, h.floor, h.final, h.place,
    t[1] or 0, c[1] or 0, t[2] or 0, c[2] or 0, t[3] or 0, c[3] or 0, t[4] or 0, c[4] or 0, t[5] or 0, c[5] or 0)
  local done = try(spread(set, 1, min(#set, 2004))) -- all of them may be too many for one call
  if type(done) == 'table' and done.err then
    known[h.key] = nil
    return done
  end
  h.stored = true
  for i = 2005, #set, 2000 do
    call('HSET', h.key, spread(set, i, min(#set, i + 1999)))
  end
  if gone then
    call(spread(gone))
  end
  if given then
    call('PEXPIRE', h.key, 86400000)
  elseif extend then
    call('PEXPIREAT', h.key, floor(h.expires / 1000) + 1)
  end
  return done
end

-- writeowed stores the holds of requests that do nothing else, and of settlements that dropped their
-- records: those of several at once, and before anything else can need them. It returns an error that
-- befalls the whole call.
function writeowed()
  local all = owed
  if #all == 0 then
    return
  end
  owed = {}
  for i = 1, #all, 3 do
    local h, unwritten = all[i], nil
    local done = h.refused or writeholds(h)
    --> room
    if unwritten then
      h.refused = done
      answers[all[i + 1]] = pack('>BHI8', 6, 1, unwritten)
      for j = all[i + 1] + 1, all[i + 2] do
        answers[j] = ''
      end
    end
  end
end
