-- What requests in flight hold of one key under one limit: a hash, apart from the count. Field ''
-- is the head; each other field is a block of records. Up to 128 records lie in the block
-- '\0', more in 32 blocks, each in that of its identity's first byte.
--
-- head    form 1 (80; 81: in 32 blocks), units held 7, records that hold 2, tombstones 2, and four
--         instants of 7: the clock from which all records count but for those that ran out;
--         before which none has run out; at which the last one runs out; at which the hash expires
-- block   two instants of 7, as in the head: before which none has run out, at which the last one
--         runs out; then its records
-- record  identity 12 (random bytes first), until 7, for how long it was made 5, units 7. Without
--         units it is a tombstone: it was released, and is not made again.
--
-- A record counts iff clock < until <= clock + 2·span. Those that ran out are dropped by the next
-- look; with given instants a second later, since the next instant may be an earlier one. By the
-- server's clock, those further ahead than that are dropped, too: the clock was set back.
--
-- The functions work on a table, which write stores:
--   key, many, sum, n, dead, high, first, last, expires   see above
--   held, count, latest   what counts: units, records, until when
--   exact                 these differ from sum, n and last
--   blocks, all, dirty    blocks that were read, whether these are all, those to be written

local char, find = string.char, string.find
-- recount drops what has run out, and finds what counts.
local function recount(h)
  if not h.all then
    local flat, blocks = call('HGETALL', h.key), h.blocks
    for i = 1, #flat, 2 do
      blocks[flat[i]] = blocks[flat[i]] or flat[i + 1]
    end
    blocks[''], h.all = nil, true
  end
  local each, limit = given or clock < h.high, given and clock - 1000000 or clock
  local held, count, latest, high, firsts, lasts = 0, 0, 0, each and 0 or h.high, 9007199254740991, 0
  for field, block in pairs(h.blocks) do
    local first, last = unpack('>I7I7', block)
    if each or first <= clock then
      local kept, from = {}, 15
      first, last = 9007199254740991, 0
      for p = 15, #block, 31 do
        local till, span, units = unpack('>I7I5I7', block, p + 12)
        if till <= limit or not given and units > 0 and till > clock + 2 * span then
          kept[#kept + 1] = sub(block, from, p - 1)
          from = p + 31
          if units > 0 then
            h.sum, h.n = h.sum - units, h.n - 1
          else
            h.dead = h.dead - 1
          end
        else
          first = min(first, till)
          if units > 0 then
            last = max(last, till)
            if each then
              high = max(high, till - 2 * span)
              if clock < till and till <= clock + 2 * span then
                held, count, latest = held + units, count + 1, max(latest, till)
              end
            end
          end
        end
      end
      kept[#kept + 1] = sub(block, from)
      local text = pack('>I7I7', first, last) .. table.concat(kept)
      if text ~= block then
        h.blocks[field], h.dirty[field] = text, true
      end
    end
    firsts, lasts = min(firsts, first), max(lasts, last)
  end
  h.high, h.first, h.last, h.exact = high, firsts, lasts, each
  if each then
    h.held, h.count, h.latest = held, count, latest
  else
    h.held, h.count, h.latest = h.sum, h.n, h.last
  end
end

-- readholds returns the table; or nil, and what is broken (see protocol.go) or an error.
function readholds(key)
  local head = try('HGET', key, '')
  local h = {key = key, sum = 0, n = 0, dead = 0, high = 0, first = 9007199254740991, last = 0,
    expires = 0, held = 0, count = 0, latest = 0, blocks = {}, dirty = {}, all = not head, stored = head}
  if not head then
    return h
  end
  if type(head) == 'table' then
    if sub(head.err, 1, 9) ~= 'WRONGTYPE' then
      return nil, head
    end
    return nil, 6
  end
  local form
  if #head == 40 then
    form, h.sum, h.n, h.dead, h.high, h.first, h.last, h.expires = unpack('>BI7HHI7I7I7I7', head)
  end
  if form ~= 80 and form ~= 81 then
    return nil, 7
  end
  h.many = form == 81
  if clock < h.first and clock >= h.high then
    h.held, h.count, h.latest = h.sum, h.n, h.last
  else
    recount(h)
    if not given then
      writeholds(h) -- ignoring errors: it is only what ran out
    end
  end
  return h
end

local function block(h, id)
  local field = h.many and char(byte(id) % 32) or '\0'
  local text = h.blocks[field]
  if not text and not h.all then
    text = call('HGET', h.key, field)
    h.blocks[field] = text or nil
  end
  return field, text or nil
end

-- findhold returns where the record of an identity lies, what it says, and whether it counts.
function findhold(h, id)
  local field, text = block(h, id)
  local p = text and find(text, id, 15, true)
  while p and (p - 15) % 31 > 0 do
    p = find(text, id, p + 1, true)
  end
  if not p then
    return
  end
  local till, span, units = unpack('>I7I5I7', text, p + 12)
  return {field = field, p = p, till = till, units = units,
    counts = units > 0 and clock < till and till <= clock + 2 * span}
end

-- addholds makes records of identities, 12 bytes each, which have none. units 0: tombstones.
function addholds(h, ids, units, till, span)
  local rest, added = pack('>I7I5I7', till, span, units), #ids / 12
  for p = 1, #ids, 12 do
    local id = sub(ids, p, p + 11)
    local field, text = block(h, id)
    local first, last = till, units > 0 and till or 0
    if text then
      local f, l = unpack('>I7I7', text)
      first, last = min(first, f), max(last, l)
      text = sub(text, 15)
    end
    h.blocks[field] = pack('>I7I7', first, last) .. (text or '') .. id .. rest
    h.dirty[field] = true
  end
  h.first, h.lasts = min(h.first, till), max(h.lasts or 0, till)
  if units == 0 then
    h.dead = h.dead + added
    return
  end
  h.sum, h.n, h.last, h.high = h.sum + units * added, h.n + added, max(h.last, till), max(h.high, till - 2 * span)
  h.held, h.count, h.latest = h.held + units * added, h.count + added, max(h.latest, till)
end

-- dropholds drops a record that findhold found.
function dropholds(h, r)
  local text = h.blocks[r.field]
  local first, last = unpack('>I7I7', text)
  text = sub(text, 15, r.p - 1) .. sub(text, r.p + 31)
  local later -- another record may run out at the same instant
  if r.units > 0 and r.till == last then
    last = 0
    for p = 13, #text, 31 do
      local till, _, units = unpack('>I7I5I7', text, p)
      if units > 0 then
        last = max(last, till)
      end
    end
    later = last < r.till and r.till == h.last
  end
  h.blocks[r.field] = pack('>I7I7', first, last) .. text
  h.dirty[r.field] = true
  if r.units == 0 then
    h.dead = h.dead - 1
    return
  end
  h.sum, h.n = h.sum - r.units, h.n - 1
  if h.exact then
    recount(h)
    return
  end
  if later and h.many then
    recount(h)
    return
  end
  if later then
    h.last = last
  end
  h.held, h.count = h.sum, h.n
  h.latest = h.last
end

-- writeholds stores what changed, and returns the reply of the first write; nil: there was none.
function writeholds(h)
  if h.n + h.dead == 0 then
    h.blocks, h.dirty, h.all, h.many, h.expires = {}, {}, true, nil, 0
    return h.stored and try('DEL', h.key)
  elseif not next(h.dirty) then
    return
  end
  if h.n + h.dead > 128 and not h.many then
    local text, parts = h.blocks['\0'], {}
    h.many, h.all, h.blocks = true, true, {}
    for p = 15, #text, 31 do
      local field = char(byte(text, p) % 32)
      local list = parts[field] or {}
      parts[field], list[#list + 1] = list, sub(text, p, p + 30)
    end
    h.dirty = {['\0'] = true}
    for field, list in pairs(parts) do
      local first, last = 9007199254740991, 0
      for j = 1, #list do
        local till, _, units = unpack('>I7I5I7', list[j], 13)
        first, last = min(first, till), units > 0 and max(last, till) or last
      end
      h.blocks[field], h.dirty[field] = pack('>I7I7', first, last) .. table.concat(list), true
    end
  end
  local lasts, stays = max(h.lasts or 0, h.expires), not given and (h.lasts or 0) > h.expires
  if stays then
    lasts = h.lasts + floor((h.lasts - clock) / 2)
  end
  local set, gone = {'HSET', h.key, '', pack('>BI7HHI7I7I7I7', h.many and 81 or 80, h.sum, h.n, h.dead, h.high, h.first, h.last, lasts)}, {}
  for field in pairs(h.dirty) do
    local text = h.blocks[field]
    if text and #text > 14 then
      set[#set + 1], set[#set + 2] = field, text
    else
      gone[#gone + 1], h.blocks[field] = field, nil
    end
  end
  local done = try(spread(set))
  if type(done) == 'table' and done.err then
    return done
  end
  h.dirty, h.lasts, h.expires = {}, nil, lasts
  if #gone > 0 then
    call('HDEL', h.key, spread(gone))
  end
  if given then
    call('PEXPIRE', h.key, 86400000)
  elseif stays then
    call('PEXPIREAT', h.key, floor(lasts / 1000) + 1)
  end
  return done
end
