-- Ends an ownership: nothing of it runs any more, what is open stays in place.
--
-- KEYS  1 fence
-- ARGV  1 token
-- Result  {1}  closed  | {0}  it was before, or the fence is another's
-- Cost  O(1)
redis.call('HDEL', KEYS[1], '') -- not deny-oom: what follows runs in a full store too

local f = redis.call('HMGET', KEYS[1], 't', 'b')
if f[1] ~= ARGV[1] then return {0} end
redis.call('HSET', KEYS[1], 't', '', 'h', f[2], 'a', '')
redis.call('HDEL', KEYS[1], 'w')
return {1}
