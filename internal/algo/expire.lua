-- A count expires in the millisecond after it has become unused. Where the caller
-- gives the instants, the server's clock says nothing about that.
if given then
  call('SET', key, write, 'PX', 86400000)
else
  call('SET', key, write, 'PXAT', floor((now + wait) / 1000) + 1)
end
