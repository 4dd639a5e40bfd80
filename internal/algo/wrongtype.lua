-- state is an error. Of the wrong type it is this key's own; any other, such as a
-- missing permission, befalls the whole call, which has read and not yet written
-- for this request.
if string.sub(state.err, 1, 9) ~= 'WRONGTYPE' then
  return state
end
broken = 1
