-- Moves delayed tasks whose time has come, by the store's clock, to the end of the
-- list. It needs no fence: it does what a producer does; and like one it does nothing while a
-- resize has the partition, which counts what is delayed by its place.
--
-- KEYS  1 fence  2 pending  3 delayed
-- ARGV  1 most to move  2 about the most bytes to move: at least one task goes
-- Result  {moved, ms until the next one or -1}
-- Cost  O(moved · log of the delayed); the payloads pass through the script

-- Not deny-oom: what follows runs in a full store too. And who may not do this fails before the push: each sweep would
-- push what is due again.
redis.call('ZREM', KEYS[3], '')

local owner = redis.call('HGET', KEYS[1], 't')
if type(owner) == 'string' and string.find(owner, ':resize-', 1, true) then return {0, -1} end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local moved, bytes, head = 0, 0
while true do
  head = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
  if not head[2] or tonumber(head[2]) > now or moved >= tonumber(ARGV[1]) or bytes >= tonumber(ARGV[2]) then break end
  redis.call('RPUSH', KEYS[2], head[1])
  redis.call('ZREM', KEYS[3], head[1])
  moved, bytes = moved + 1, bytes + #head[1]
end
return {moved, head[2] and math.max(0, tonumber(head[2]) - now) or -1}
