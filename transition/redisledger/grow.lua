-- Raises the number of partitions, because the broker has more, and makes a roll due
-- that shares out the new ones. Said again it changes nothing.
--
-- KEYS    as in ledger.lua
-- ARGV    1 to 6 as in ledger.lua  7 partitions
-- result  {'grown'}; {'stands'}: there were as many, or nobody has made the name yet
-- cost    ~12 commands

local total = redis.call('HGET', KEYS[1], 'total')
if not total or tonumber(ARGV[7]) <= tonumber(total) then return {'stands'} end
begin(true)
redis.call('HSET', KEYS[1], 'total', ARGV[7])
moved(meta.clock)
commit()
tell(ARGV[6], 'due')
return {'grown'}
