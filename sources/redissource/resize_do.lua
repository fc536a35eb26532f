-- resize_do runs one command on a key of a partition, for the mover that has its fence.
--
-- KEYS  1 fence  2 the key
-- ARGV  1 token of the mover  2 the command, and its arguments after the key
-- Result  1; 0 = another has the fence: nothing done
-- Cost  that of the command
redis.call('HDEL', KEYS[1], '') -- not deny-oom: what follows runs in a full store too
if redis.call('HGET', KEYS[1], 't') ~= ARGV[1] then return 0 end
redis.call(ARGV[2], KEYS[2], unpack(ARGV, 3))
return 1
