-- Tells whoever remembers refusals that they may not stand. It comes before anything
-- is undone: a script is heard of when it is over, also one that fails half-way. What
-- a user may not publish nobody hears of; see Store.Listen.
for i = 4, #ARGV do
  redis.pcall('PUBLISH', ARGV[3], ARGV[i])
end
