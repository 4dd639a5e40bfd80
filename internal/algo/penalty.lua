-- The record is the form (4) and the instant of the last violation in 7 bytes,
-- the violations in 4, the end of the last ban in 8 and the bans in 4.

--@ look
local head, low, violations, till, bans = 64, 0, 0, 0, 0
if type(state) == 'table' then
  outcome, who, number = 6, j, 1
elseif state then
  if #state == 23 then
    head, low, violations, till, bans = unpack('>BI6I4I8I4', state)
  end
  if #state ~= 23 or head < 64 or head >= 80 then
    outcome, who, number = 6, j, 2
  end
end
local last = (head - 64) * 281474976710656 + low
local left = till - math.max(clock, last)
if left > number and outcome ~= 6 then
  outcome, who, number = 5, j, left
end
records[j] = {last, violations, till, bans, warn, ban, term, forget, growth, most}

--@ violate
local last, violations, till, bans = record[1], record[2], record[3], record[4]
local at = math.max(clock, last)
if at - last >= forget then
  violations = 0
end
if at - till >= forget then
  bans = 0
end
violations = math.min(violations + 1, 2147483648)
if ban > 0 and violations >= ban then
  local left = term
  for n = 1, bans do
    if growth == 1 or left >= most then
      break
    end
    left = left * growth
  end
  left = math.min(left, most)
  till, bans, violations = at + left, math.min(bans + 1, 2147483648), 0
  outcome = 4
  if left > number then
    who, number = j, left
  end
elseif warn > 0 and violations >= warn then
  outcome = math.max(outcome, 3)
end
local record = pack('>BI6I4I8I4', 64 + floor(at / 281474976710656), at % 281474976710656, violations, till, bans)
if given then
  call('SET', key, record, 'PX', 86400000)
else
  call('SET', key, record, 'PXAT', floor((math.max(at, till) + forget) / 1000) + 1)
end
