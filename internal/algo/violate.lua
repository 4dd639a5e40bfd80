-- Counts violations that the caller has found: so many in each record as if one after
-- another, or none where a ban of one runs already. Read take.lua first; the sections are the same.
--
-- KEYS     the penalties' records
-- ARGV[1]  the instant in µs; empty: the server's clock
-- ARGV[2]  the penalties, packed as a request of no asks (see protocol.go)
-- ARGV[3]  how many violations each counts, 4 bytes each
-- returns  the head of an answer; who is the place of the record that decided, 0: there
--          was no memory for any

local try, unpack, pack = redis.pcall, struct.unpack, struct.pack
local floor = math.floor
local given = ARGV[1] ~= ''
local clock
if given then
  clock = tonumber(ARGV[1])
else
  local t = redis.call('TIME')
  clock = t[1] * 1000000 + t[2]
end
local outcome, who, number = 0, 0, 0
local records, pos = {}, 8

for j = 1, #KEYS do
  local warn, ban, term, forget, growth, most
  warn, ban, term, forget, growth, most, pos = unpack('>I4I4I7I7I4I7', ARGV[2], pos)
  local state = try('GET', KEYS[j])
  --> penalty look
end

if outcome == 0 then
  outcome = 2
  for j = 1, #KEYS do
    local record, key = records[j], KEYS[j]
    local warn, ban, term, forget, growth, most = record[5], record[6], record[7], record[8], record[9], record[10]
    record[12] = unpack('>I4', ARGV[3], j * 4 - 3)
    --> penalty violate
  end
end

return pack('>BHI8', outcome, who, number)
