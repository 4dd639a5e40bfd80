-- Windows of the calendar: the one in which the caller believes to be begins at b and ends at
-- c; that before it begins at a, and that after it ends at d. All are instants in µs.
-- The state is the form (5) and the instant of the last charge in 7 bytes, where its window
-- begins in 7, and its count in 7.
-- aux is where the window of now begins, or that of the count if it began later: instances
-- with other data of time zones never set each other's counts back.

--@ look
-- state is false where there is none.
local head, low, from, count
if not state then
  head, low, from, count = 80, 0, 0, 0
elseif #state == 21 then
  head, low, from, count = unpack('>BI6I7I7', state)
end
if not head or head < 80 or head >= 96 then
  broken = 2
elseif clock < a or clock >= d then
  broken = outside + clock
else
  local last = (head - 80) * 281474976710656 + low
  local length = clock < b and b - a or clock < c and c - b or d - c
  if last > now then
    if last - now <= math.max(length, 1000000) then
      now = last
    else
      from = -1
    end
  end
  if now >= d and clock >= c then
    broken = outside + clock
  else
    -- From d on, now is less than the length of the clock's window after c, so it is in the
    -- window that begins at d.
    aux = now < b and a or now < c and b or now < d and c or d
    if from >= aux then
      aux, used = from, count
    end
  end
end

--@ charge
used = used + cost
write = pack('>BI6I7I7', 80 + floor(now / 281474976710656), now % 281474976710656, aux, used)

--@ reset
-- From d on, the end is not known, and a later one does no harm.
wait = (now < b and b or now < c and c or now < d and d or d + d - b) - now

--@ refund
if cost >= used then
  call('DEL', key)
else
  write = pack('>BI6I7I7', head, low, from, used - cost)
end
