-- Writes a version of a document, if the newest so far is the one before it, and
-- publishes its name. Numbers are compared as text, which is exact for all.
--
-- KEYS[1]  the document: a hash of "newest", the "digest" of that version, and each
--          version by its number
-- ARGV     the number of the version, of the one before, of the one to be dropped;
--          the text; the channel; the document's name
-- returns  1 if it was written, else 0

local newest = redis.call('HGET', KEYS[1], 'newest') or '0'
if newest ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], 'newest', ARGV[1], 'digest', redis.sha1hex(ARGV[4]), ARGV[1], ARGV[4])
redis.call('HDEL', KEYS[1], ARGV[3])
-- It is written even if this user may not publish: watchers also ask from time to time.
redis.pcall('PUBLISH', ARGV[5], ARGV[6])
return 1
