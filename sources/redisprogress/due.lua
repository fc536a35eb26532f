-- Moves delayed tasks whose time has come, by the store's clock, to the end of the
-- list. It needs no fence: it does what a producer does.
--
-- KEYS  1 fence  2 pending  3 delayed
-- ARGV  1 most to move
-- Result  {moved, ms until the next one or -1}
-- Cost  O(moved · log of the delayed); the payloads pass through the script
redis.call('HDEL', KEYS[1], '') -- not deny-oom: what follows runs in a full store too

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', now), 'LIMIT', 0, ARGV[1])
for _, m in ipairs(due) do
  redis.call('RPUSH', KEYS[2], m)
  redis.call('ZREM', KEYS[3], m)
end
local head, wait = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES'), -1
if head[2] then wait = math.max(0, tonumber(head[2]) - now) end
return {#due, wait}
