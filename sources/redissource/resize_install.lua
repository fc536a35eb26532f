-- resize_install makes what was moved to a partition its log, its dead letters and its
-- delayed tasks. What stands there already was pushed since, and comes after it.
--
-- KEYS  1 :pending and 2 what was moved for it  3 :dead, 4 likewise  5 :delayed, 6 likewise
--       7 fence
-- ARGV  1 token of the mover
-- Result  1; 0 = another has the fence: nothing done
-- Cost  O(1), and O(what stands there already)
redis.call('LTRIM', KEYS[2], 0, -1) -- changes nothing and is not deny-oom: what follows runs in a full store too
if redis.call('HGET', KEYS[7], 't') ~= ARGV[1] then return 0 end
for i = 1, 3, 2 do
  if redis.call('EXISTS', KEYS[i + 1]) == 1 then
    while redis.call('EXISTS', KEYS[i]) == 1 do redis.call('LMOVE', KEYS[i], KEYS[i + 1], 'LEFT', 'RIGHT') end
    redis.call('RENAME', KEYS[i + 1], KEYS[i])
  end
end
if redis.call('EXISTS', KEYS[6]) == 1 then
  redis.call('ZUNIONSTORE', KEYS[5], 2, KEYS[5], KEYS[6])
  redis.call('DEL', KEYS[6])
end
return 1
