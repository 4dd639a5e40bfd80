-- done is the reply to a write. A server that takes none, for want of memory (3), because
-- its disk fails (4) or for want of replicas (5), refuses the first write of a call, and
-- every other one then: so nothing was written for this request, and those of the call
-- that write nothing are still answered. Any other error befalls the whole call.
if type(done) == 'table' and done.err then
  local find = string.find
  unwritten = find(done.err, 'OOM ', 1, true) and 3 or find(done.err, 'MISCONF ', 1, true) and 4
    or find(done.err, 'NOREPLICAS ', 1, true) and 5
  if not unwritten then
    return done
  end
end
