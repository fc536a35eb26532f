-- resize_trim takes off what was moved, if what it begins with is still what was read.
--
-- KEYS  1 :dead or :delayed  2 how many were taken off in this resize  3 fence
-- ARGV  1 how many that were when they were read  2 how many they are
--       3 seconds the count is kept  4 'dead' or 'delayed'  5 token of the mover
-- Result  1; 0 = others were taken off meanwhile, or another has the fence
-- Cost  O(what is taken off)
if redis.call('HGET', KEYS[3], 't') ~= ARGV[5] then return 0 end
if (redis.call('GET', KEYS[2]) or '0') ~= ARGV[1] then return 0 end
if ARGV[4] == 'delayed' then
  redis.call('ZREMRANGEBYRANK', KEYS[1], 0, ARGV[2] - 1)
else
  redis.call('LTRIM', KEYS[1], ARGV[2], -1)
end
redis.call('SET', KEYS[2], string.format('%.0f', ARGV[1] + ARGV[2]), 'EX', ARGV[3])
return 1
