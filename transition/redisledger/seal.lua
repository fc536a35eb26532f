-- Replaces the roll (transition.Ledger.Seal).
--
-- KEYS    as in ledger.lua
-- ARGV    1 to 12 as in ledger.lua
--         13 version of the roll it replaces  14 membership it was built on  15 replicas
--         16 seats, see ledger.lua  17... session, 'index: partitions', 'weight up|down peer' of each member
-- result  {'config'}: as in sync.lua; {'stale'}: another roll was sealed since, or
--         grace, or a barrier is closed; {'sealed', version}
-- cost    ~12 commands and one HSET for 200 members; O(members)

redis.call('HDEL', KEYS[2], '-') -- a full store refuses a script whose first write needs memory, but not a later write
local refusal = agree()
if refusal then return refusal end
begin(true)
if graceful() or meta.behind > 0 or tonumber(ARGV[13]) ~= version then
	commit()
	return {'stale'}
end

local sealed = str(number())
redis.call('DEL', KEYS[5])
local fields = {'_', sealed .. ' ' .. ARGV[14] .. ' ' .. ARGV[15]}
if ARGV[16] ~= '' then
	fields[3], fields[4] = '_.peer', ARGV[16]
end
for i = 17, #ARGV, 3 do
	fields[#fields + 1] = ARGV[i]
	fields[#fields + 1] = ARGV[i + 1]
	fields[#fields + 1] = ARGV[i] .. '.peer'
	fields[#fields + 1] = ARGV[i + 2]
	if #fields > 800 then -- unpack has a limit
		redis.call('HSET', KEYS[5], unpack(fields))
		fields = {}
	end
end
if #fields > 0 then redis.call('HSET', KEYS[5], unpack(fields)) end
note('sealed', '', '', '', '', sealed .. ' ' .. ARGV[15])
version = tonumber(sealed)
look()
set('changed', meta.clock) -- counts if the membership moved on meanwhile: the roll is due again
commit()
tell(ARGV[6], sealed)
return {'sealed', sealed}
