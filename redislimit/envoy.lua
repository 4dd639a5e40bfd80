-- Counts as envoyproxy/ratelimit does, whose own instances may change the same counts: whole
-- numbers, each with the start of its window in its key.
--
-- KEYS     counts, those of one request after those of another
-- ARGV     for each request: how many counts it has, and what to do with them (look: nothing,
--          take: charge all if all fit, charge: each up to its most); then for each count: the
--          units, the most that it may be, and how many seconds it lives
-- returns  for each request 1 if all fit, else 0, and for each count what it was before; or the
--          place of a key that is no count, negative. Nothing was written then

local count = {}
for i, key in ipairs(KEYS) do
  if not count[key] then
    local text = redis.call('GET', key) or '0'
    if not string.find(text, '^%d+$') then
      return { -i }
    end
    -- Beyond, numbers are not exact here, and beyond 2^63 the reply would be negative.
    count[key] = math.min(tonumber(text), 9007199254740992)
  end
end

local function add(key, units, seconds)
  count[key] = redis.call('INCRBY', key, string.format('%.0f', units))
  -- The second lets a count expire whose EXPIRE was lost.
  if count[key] == units or redis.call('TTL', key) < 0 then
    redis.call('EXPIRE', key, seconds)
  end
end

local reply, arg, first = {}, 1, 0
while arg < #ARGV do
  local n, what = tonumber(ARGV[arg]), ARGV[arg + 1]
  arg = arg + 2
  local fits, asked, answer = 1, {}, #reply + 1
  for i = 1, n do
    local key, at = KEYS[first + i], arg + 3 * (i - 1)
    local units, most = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
    local used = count[key] + (asked[key] or 0) -- keys of several values may be one
    asked[key] = (asked[key] or 0) + units
    if used + units > most then
      fits = 0
    end
    reply[answer + i] = used
  end
  reply[answer] = fits
  for i = 1, n do
    local key, at = KEYS[first + i], arg + 3 * (i - 1)
    local units = tonumber(ARGV[at])
    if what == 'charge' then
      units = math.min(units, tonumber(ARGV[at + 1]) - count[key])
    elseif what ~= 'take' or fits == 0 then
      units = 0
    end
    if units > 0 then
      add(key, units, ARGV[at + 2])
    end
  end
  arg, first = arg + 3 * n, first + n
end
return reply
