-- A count expires in the millisecond after it has become unused. Where the caller
-- gives the instants, the server's clock says nothing about that.
local done
if given then
  done = try('SET', key, write, 'PX', 86400000)
else
  done = try('SET', key, write, 'PXAT', floor((now + wait) / 1000) + 1)
end
--> room
