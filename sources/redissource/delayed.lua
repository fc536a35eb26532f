-- Takes a task that is not due from where it waits, and puts it at the end of the log or among the dead
-- letters, or only takes it away, with its lock. Said again it changes nothing: the task is not there.
--
-- KEYS  1 delayed  2 pending, or dead  3 fence  4 its lock (without one: fence again)
-- ARGV  1 the envelope  2 'now' to put it at the end, 'dead' to bury it, 'drop'  3 value of its lock; '' = it has none
--       4 to bury it: the letter
-- Result  1 done, 0 there is no such task, 2 a resize has the partition, which counts what is delayed by its place
-- Cost  O(log of the delayed); as one it runs in a full store
if resized() then return 2 end
local now, dead = ARGV[2] == 'now', ARGV[2] == 'dead'
local why = (now or dead) and unfit({[2] = 'list', [3] = 'hash'})
if why then return why end
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then return 0 end
if now then
  redis.call('RPUSH', KEYS[2], ARGV[1])
  ring(KEYS[3], redis.call('HMGET', KEYS[3], 'w'))
  return 1
end
if dead then redis.call('RPUSH', KEYS[2], ARGV[4]) end
if ARGV[3] ~= '' and redis.pcall('GET', KEYS[4]) == ARGV[3] then
  redis.call('DEL', KEYS[4])
end
return 1
