-- The record is the form (4) and the instant of the last violation in 7 bytes,
-- the violations in 4, the end of the last ban in 8, the bans in 4, and in 7 after how
-- long it is forgotten.

--@ look
local head, low, violations, till, bans, lasts = 64, 0, 0, 0, 0, 0
if type(state) == 'table' then
  local broken
  --> wrongtype
  outcome, who, number = 6, j, broken
elseif state then
  if #state == 30 then
    head, low, violations, till, bans, lasts = unpack('>BI6I4I8I4I7', state)
  end
  if #state ~= 30 or head < 64 or head >= 80 then
    outcome, who, number = 6, j, 2
  end
end
local last = (head - 64) * 281474976710656 + low
local stale -- further ahead than it can last: as if there were none
if last - clock > 1000000 and last - clock > (till > last and till - last or forget) then
  last, violations, till, bans, stale = 0, 0, 0, 0, true
end
local left = till - math.max(clock, last)
if left > number and outcome ~= 6 then
  outcome, who, number = 5, j, left
end
records[j] = {last, violations, till, bans, warn, ban, term, forget, growth, most, stale, nil, math.min(forget, lasts)}

--@ violate
local last, violations, till, bans = record[1], record[2], record[3], record[4]
local at = math.max(clock, last)
local lasts = record[13] -- what was to be forgotten stays so, since it may have expired
if at - last >= lasts then
  violations = 0
end
if at - till >= lasts then
  bans = 0
end
violations = math.min(violations + (record[12] or 1), 2147483648) -- times: violate.lua
local sentence, left = 2, 0
if ban > 0 and violations >= ban then
  left = term
  for n = 1, bans do
    if growth == 1 or left >= most then
      break
    end
    left = left * growth
  end
  left = math.min(left, most)
  if at - clock > math.max(left, 1000000) then
    at = clock
  end
  till, bans, violations = at + left, math.min(bans + 1, 2147483648), 0
  sentence = 4
elseif warn > 0 and violations >= warn then
  sentence = 3
end
local record = pack('>BI6I4I8I4I7', 64 + floor(at / 281474976710656), at % 281474976710656, violations, till, bans, forget)
local done
if given then
  done = try('SET', key, record, 'PX', 86400000)
else
  done = try('SET', key, record, 'PXAT', floor((math.max(at, till) + forget) / 1000) + 1)
end
-- Where there is no memory for the record, the request is refused all the same.
if not done.err and (who == 0 or sentence > outcome or sentence == 4 and left > number) then
  outcome, who, number = sentence, j, sentence == 4 and left or violations
end
