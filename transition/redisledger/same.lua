-- A quiet Sync: the caller would say what it said in the last Sync that was answered in
-- full, which claimed and released nothing, and renews its lease. If the answer
-- would be another one, or somebody is to be reaped, it is asked to say everything.
--
-- KEYS    1 to 6 as in ledger.lua
-- ARGV    1 to 6 as in ledger.lua
--         7 session  8 stamp of that answer  9 highest number known
--         10 version of the newest roll known
-- result  {'same', behind, count, due, expiry, grace, longest lease}, or {'say'}
-- cost    ~13 commands, whatever the number of peers and partitions

-- A fleet in which nothing changes says nothing else, and would leave the name without a configuration that was lost, or
-- under one that a producer made anew: that says nothing of units, a pause or requirements, and may have another number of
-- partitions. Only a peer writes its units. Where the key cannot be read all is better left as it is.
local config = redis.pcall('HMGET', KEYS[1], 'total', 'units')
if not config.err and not (config[1] and config[2]) then return {'say'} end

redis.call('HDEL', KEYS[2], '-') -- a full store refuses a script whose first write needs memory, but not a later write
begin()
local me, top = ARGV[7], tonumber(ARGV[9])
if overdue() or not member(me) or row(me).state == 'gone' or stamp(me) ~= ARGV[8] then
	commit()
	return {'say'}
end
if top > meta.count then set('count', top) end
redis.call('ZADD', KEYS[4], str(meta.clock + tonumber(ARGV[1])), me)
commit()
return {'same', awaited(tonumber(ARGV[10])), times()}
