-- a: period in µs
-- The state is the form (2) and the instant of the last charge in 7 bytes, and
-- the count of its window in 7.

--@ look
local head, low, count
if #state == 14 then
  head, low, count = unpack('>BI6I7', state)
end
if not head or head < 32 or head >= 48 then
  broken = 2
else
  local last = (head - 32) * 281474976710656 + low
  if last > now and last - now <= math.max(a, 1000000) then
    now = last
  end
  if floor(now / a) == floor(last / a) then
    used = count
  end
end

--@ charge
used = used + cost
write = pack('>BI6I7', 32 + floor(now / 281474976710656), now % 281474976710656, used)

--@ reset
wait = a - now % a

--@ refund
if cost >= used then
  call('DEL', key)
else
  write = pack('>BI6I7', head, low, used - cost)
end
