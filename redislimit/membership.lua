-- Notes that an instance lives, forgets those that have not said so lately, and
-- counts the rest. A word further ahead than one counts is of before the clock
-- jumped back, and forgotten, too: who lives says so again.
--
-- KEYS[1]  the census: a sorted set of instances by the instant of their last word
-- ARGV     the instance; how long its word counts, ms
-- returns  how many live

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now + ARGV[2]), '+inf')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
