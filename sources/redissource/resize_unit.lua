-- resize_unit takes the fence of an ingress list from an owner that is away, unless a batch
-- is under way: one that wakes up later plans none by the former number of partitions, or of a
-- list that has no owner any more.
--
-- KEYS  1 fence of the list  2 its plan
-- Result  1; 0 = a batch is under way: nothing done
-- Cost  O(1)
redis.call('HDEL', KEYS[1], '') -- not deny-oom: what follows runs in a full store too
if redis.call('HEXISTS', KEYS[1], 'n') == 1 then return 1 end -- that of a partition, see ingress_open.lua
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
if redis.call('HEXISTS', KEYS[1], 't') == 1 then redis.call('HSET', KEYS[1], 't', '') end
return 1
