-- Forgets keys, and tells of it.
--
-- KEYS     what is to be forgotten
-- ARGV[3]  the channel; what follows is told there

--> invalidate
redis.call('DEL', unpack(KEYS))
return 0
