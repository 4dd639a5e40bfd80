-- done is the reply to a write. A server that is out of memory refuses the first write of
-- a call, and every other one then; so nothing was written for this request, and others
-- of the call that write nothing are still answered. Any other error befalls the whole
-- call.
if type(done) == 'table' and done.err then
  if not string.find(done.err, 'OOM ', 1, true) then
    return done
  end
  oom = true
end
