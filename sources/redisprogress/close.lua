-- Ends an ownership: nothing of it runs any more, what is open stays in place.
--
-- KEYS  1 fence
-- ARGV  1 token  2 epoch
-- Result  {1}  closed, also if it was before  | {0, epoch}  the fence is another's
-- Cost  O(1)
redis.call('HDEL', KEYS[1], '') -- not deny-oom: what follows runs in a full store too

local f = redis.call('HMGET', KEYS[1], 't', 'e', 'b')
local epoch = tonumber(f[2] or '0')
if f[1] == ARGV[1] then
  redis.call('HSET', KEYS[1], 't', '', 'h', f[3], 'a', '')
  redis.call('HDEL', KEYS[1], 'w')
  return {1}
end
if f[1] == '' and epoch == tonumber(ARGV[2]) then return {1} end
return {0, epoch}
