-- Claims a name, if nobody else has it.
--
-- KEYS[1]  who has the claim
-- ARGV     who claims it; for how long, ms
-- returns  1 if the caller has it now, else 0

local has = redis.call('GET', KEYS[1])
if has and has ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
