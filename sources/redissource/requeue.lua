-- Takes a dead letter from its list and puts its task at the end of the log, or only
-- takes it away. Said again it changes nothing: the letter is gone.
--
-- KEYS  1 dead  2 pending  3 fence
-- ARGV  1 the letter, whole  2 the envelope to put at the end, '' to drop it
-- Result  1 done, 0 there is no such letter, 2 a resize has the partition: it moves the letters
--         page by page, and would cut off others than it has read
-- Cost  O(dead letters of the partition)
if resized() then return 2 end
local why = ARGV[2] ~= '' and unfit({'list', 'list', 'hash'})
if why then return why end
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then return 0 end
if ARGV[2] ~= '' then
  redis.call('RPUSH', KEYS[2], ARGV[2])
  ring(KEYS[3], redis.call('HMGET', KEYS[3], 'w'))
end
return 1
