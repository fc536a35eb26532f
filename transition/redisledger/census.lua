-- Reads everything and changes nothing, not even the clock (transition.Ledger.Census).
--
-- KEYS    as in ledger.lua, and 9 refused (see package redisconfig)
-- ARGV    none
-- result  {seconds, microseconds, meta, sessions, leases, roll, transition, peers, refused},
--         the last seven as flat lists: of fields and values, but refused, which is an error if it cannot be read
-- cost    8 commands; O(peers + partitions), some 3 ms for 16,384 partitions

local time = redis.call('TIME')
return {
	time[1], time[2],
	redis.call('HGETALL', KEYS[2]),
	redis.call('HGETALL', KEYS[3]),
	redis.call('ZRANGE', KEYS[4], 0, -1, 'WITHSCORES'),
	redis.call('HGETALL', KEYS[5]),
	redis.call('HGETALL', KEYS[6]),
	redis.call('HGETALL', KEYS[8]),
	redis.pcall('LRANGE', KEYS[9], 0, -1), -- for people: that it cannot be read must not keep a roll from being sealed
}
