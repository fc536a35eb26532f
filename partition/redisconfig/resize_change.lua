-- resize_change goes on with a change of the number of partitions, or ends it, if it stands as
-- the caller knows it.
--
-- KEYS  1 the configuration  2 who was refused: of another number of partitions nobody was
-- ARGV  1 the field resize as it is known  2 as it is to be; '' = the change is over
--       3 and 4 protocol and number of partitions from then on
-- Result  1; 0 = another one stands, or none: nothing done
-- Cost  O(1)
redis.call('HDEL', KEYS[1], '-') -- not deny-oom: what follows runs in a full store too
local protocol, stands, total = unpack(redis.call('HMGET', KEYS[1], 'protocol', 'resize', 'total'))
if ARGV[2] ~= '' and stands == ARGV[2] then return 1 end -- said again
if protocol ~= 'resizing' or stands ~= ARGV[1] then return 0 end
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[1], 'resize', ARGV[2])
else
  redis.call('HSET', KEYS[1], 'protocol', ARGV[3], 'total', ARGV[4])
  redis.call('HDEL', KEYS[1], 'resize')
  if total ~= ARGV[4] then redis.call('DEL', KEYS[2]) end
end
return 1
