-- Reads elements of a log, if it still begins where their positions are counted from.
--
-- KEYS    1 fence  2 pending
-- ARGV    1 base  2 from  3 to, as of LRANGE
-- result  elements | false: the base is another
-- cost    O(elements)
if tonumber(redis.call('HGET', KEYS[1], 'b') or '') ~= tonumber(ARGV[1]) then return false end
return redis.call('LRANGE', KEYS[2], ARGV[2], ARGV[3])
