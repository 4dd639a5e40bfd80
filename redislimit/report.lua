-- Writes a part of a report, and drops the parts that have ended and those that are too
-- many. All of a report expires with its last part.
--
-- KEYS[1]  a sorted set of the parts' names by the instant when they end, ms
-- KEYS[2]  a hash of the parts' texts by their names
-- ARGV     the part's name; its text; how long it is kept, ms; how many parts there may be

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[3]), ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])

local function drop(parts)
  if #parts > 0 then
    redis.call('ZREM', KEYS[1], unpack(parts))
    redis.call('HDEL', KEYS[2], unpack(parts))
  end
end

drop(redis.call('ZRANGE', KEYS[1], '-inf', now, 'BYSCORE'))
drop(redis.call('ZRANGE', KEYS[1], 0, -ARGV[4] - 1))
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
if last then
  redis.call('PEXPIREAT', KEYS[1], last)
  redis.call('PEXPIREAT', KEYS[2], last)
end
return 1
