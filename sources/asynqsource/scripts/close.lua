-- Ends an ownership: nothing of it runs any more, what is open goes back in order.
--
-- KEYS  1 fence  2 pending  3 active  4 lease
-- ARGV  1 token  2 epoch  3 prefix of task keys
-- Result  {1}  closed, also if it was before  | {0, epoch}  the fence is another's
-- Cost  O(given back)
local f = redis.call('HMGET', KEYS[1], 't', 'e')
local epoch = tonumber(f[2] or '0')
if f[1] == ARGV[1] then
  giveback(KEYS[2], KEYS[3], KEYS[4], ARGV[3])
  redis.call('HSET', KEYS[1], 't', '', 'a', '')
  return {1}
end
if f[1] == '' and epoch == tonumber(ARGV[2]) then return {1} end
return {0, epoch}
