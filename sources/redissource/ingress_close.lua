-- ingress_close ends an ownership of an ingress list.
--
-- KEYS  1 fence of the list
-- ARGV  1 token
-- Result  1; 0 if the fence is another's
-- Cost  O(1)
redis.call('HDEL', KEYS[1], '') -- not deny-oom: what follows runs in a full store too
if redis.call('HGET', KEYS[1], 't') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 't', '')
return 1
