-- Says that nobody is to work under the name, or that they may again. Said again it changes
-- nothing.
--
-- KEYS    as in ledger.lua
-- ARGV    1 to 6 as in ledger.lua  7 since when, in ms, and why, or '': it is resumed
-- result  {'said'}; {'stands'}: it is as asked for; {'none'}: nobody has made the name yet
-- cost    ~12 commands, whatever the number of peers: that all hear of it is in their stamps

redis.call('HDEL', KEYS[2], '-') -- a full store refuses a script whose first write needs memory, but not a later write
local total, stands = unpack(redis.call('HMGET', KEYS[1], 'total', 'paused'))
local raw, kept = unpack(redis.call('HMGET', KEYS[2], 'raw', 'paused'))
if not total then return {'none'} end
local wanted = ARGV[7] ~= ''
if (stands and true or false) == wanted and (tonumber(kept or 0) > 0) == wanted then return {'stands'} end
if not wanted then
	redis.call('HDEL', KEYS[1], 'paused')
elseif not stands then
	redis.call('HSET', KEYS[1], 'paused', ARGV[7])
end
-- As in require.lua: a store that knows nothing is for the first peer to begin, who reads it there.
if not raw then return {'said'} end
begin(true)
set('paused', wanted and number() or 0)
note(wanted and 'paused' or 'resumed', '', '', '', '', '')
commit()
tell(ARGV[6], 'due')
return {'said'}
