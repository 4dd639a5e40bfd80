-- Publishes the keys whose remembered refusals may no longer hold. It does so before
-- anything is changed, because messages are sent when a script ends, even if it fails
-- half-way. Errors are ignored: a user without the permission to publish changes counts
-- without notifying others; see redislimit.Store.Notify.
for i = 4, #ARGV do
  redis.pcall('PUBLISH', ARGV[3], ARGV[i])
end
