-- What whole.lua and calls.lua do with a count of any kind (5: there is none).

--@ look
if kind == 5 then
  now, used = clock, 0
elseif kind == 3 then
  --> log look
else
  local state = try('GET', key)
  now, used = clock, 0
  if not state and kind ~= 6 then
    -- unused
  elseif type(state) == 'table' then
    --> wrongtype
  elseif kind <= 1 then
    --> bucket look
  elseif kind == 2 then
    --> fixed look
  elseif kind == 6 then
    --> calendar look
  else
    --> window look
  end
end

--@ charge
if kind <= 1 then
  --> bucket charge
elseif kind == 2 then
  --> fixed charge
elseif kind == 3 then
  --> log charge
elseif kind == 6 then
  --> calendar charge
else
  --> window charge
end

--@ reset
if kind <= 1 then
  --> bucket reset
elseif kind == 2 then
  --> fixed reset
elseif kind == 3 then
  --> log reset
elseif kind == 6 then
  --> calendar reset
else
  --> window reset
end

--@ write
-- A log has been written by its charge, and expires as all others.
if write then
  --> expire
elseif given then
  call('PEXPIRE', key, 86400000)
else
  call('PEXPIREAT', key, floor((now + wait) / 1000) + 1)
end
