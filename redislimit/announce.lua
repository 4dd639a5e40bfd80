-- Notes a text that an instance announces, removes those that no instance has announced
-- lately, and returns the rest: each text once, however many instances announce it.
--
-- KEYS[1]  a sorted set of texts by the instant when they were announced last
-- ARGV     the text; how long it counts, ms
-- returns  up to 100 texts

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now + ARGV[2]), '+inf')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZREVRANGE', KEYS[1], 0, 99)
