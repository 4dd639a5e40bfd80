-- Notes a heartbeat of an instance, removes instances whose last one is too old, and
-- counts the rest. A heartbeat too far in the future is of before the clock jumped back,
-- and removed, too: an instance that is alive sends another one.
--
-- KEYS[1]  a sorted set of instances by the instant of their last heartbeat
-- ARGV     the instance; how long a heartbeat counts, ms
-- returns  the number of live instances

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now + ARGV[2]), '+inf')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
