-- Says what partitions ask of their owners, and makes a roll due that goes by it. Said
-- again it changes nothing. From then on builds that do not know of it are refused.
--
-- KEYS    as in ledger.lua
-- ARGV    1 to 6 as in ledger.lua  7 protocol to stand  8 the requirements, one a line
-- result  {'required'}; {'stands'}: they are what they were; {'none'}: nobody has made
--         the name yet; {'resizing'}: its number of partitions is being changed
-- cost    ~13 commands

local protocol, total, stands = unpack(redis.call('HMGET', KEYS[1], 'protocol', 'total', 'requires'))
if not total then return {'none'} end
if protocol == 'resizing' then return {'resizing'} end
-- A configuration that was lost and made anew says nothing, and begin would bring back what it said.
local kept = not stands and redis.call('HEXISTS', KEYS[2], 'requires') == 1
if (stands or '') == ARGV[8] and not kept then return {'stands'} end
redis.call('HSET', KEYS[1], 'protocol', ARGV[7], 'requires', ARGV[8])
-- Whoever says this is no peer, and has no times. A store that knows nothing, or nothing any
-- more, is for the first peer to begin.
if redis.call('HEXISTS', KEYS[2], 'raw') == 0 then return {'required'} end
requires = ARGV[7] .. ' ' .. ARGV[8]
begin(true)
moved(meta.clock)
commit()
tell(ARGV[6], 'due')
return {'required'}
