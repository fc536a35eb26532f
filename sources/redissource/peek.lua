-- Reads what stands in a log, in one moment. A transaction would, too, but a full server takes
-- none, not even to read, and then one looks.
--
-- KEYS    1 fence  2 pending  3 done
-- ARGV    1 from  2 to, as of LRANGE
-- result  {base or false, elements, finished positions}
-- cost    3 commands

return {redis.call('HGET', KEYS[1], 'b'), redis.call('LRANGE', KEYS[2], ARGV[1], ARGV[2]), redis.call('ZRANGE', KEYS[3], 0, -1)}
