-- Finds out whether anybody uses the name, and removes it if nobody does, or gives it other
-- ingress lists.
--
-- KEYS    as in ledger.lua, and 9 refused (see package redisconfig)
-- ARGV    1 what to do with an idle name: look, remove its keys, or units
--         (of units) 2 hash of the names that stand  3 that of those to come  4 these
-- result  {'idle'}, or {'used', state weight stamp held peer, lease left in ms, ...}
--         (of units) {'changed'}: others stand, or the number of partitions is being changed
-- cost    7 commands; O(sessions)

redis.call('HDEL', KEYS[2], '-') -- a full store refuses a script whose first write needs memory, but not a later write
local stored = redis.call('HMGET', KEYS[2], 'raw', 'clock', 'step')
local used = {'used'}
if stored[1] then
	-- Where all peers crashed nobody else moves the clock, and a lease would never end.
	local time = redis.call('TIME')
	local raw = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
	local passed = math.min(math.max(raw - tonumber(stored[1]), 0), tonumber(stored[3]))
	local clock = tonumber(stored[2]) + passed
	redis.call('HSET', KEYS[2], 'raw', str(raw), 'clock', str(clock))
	local leases = redis.call('ZRANGEBYSCORE', KEYS[4], str(clock), '+inf', 'WITHSCORES')
	for i = 1, #leases, 2 do
		local v = redis.call('HGET', KEYS[3], leases[i]) or ''
		if string.match(v, '^%a+') ~= 'gone' then -- who is gone works on nothing
			used[#used + 1] = v
			used[#used + 1] = str(tonumber(leases[i + 1]) - clock)
		end
	end
end
if #used > 1 then return used end
if ARGV[1] == 'remove' then redis.call('DEL', unpack(KEYS)) end
if ARGV[1] == 'units' then
	local protocol, units = unpack(redis.call('HMGET', KEYS[1], 'protocol', 'units'))
	if not protocol or protocol == 'resizing' or (units or '-') ~= ARGV[2] then return {'changed'} end
	redis.call('HSET', KEYS[1], 'units', ARGV[3], 'unitnames', ARGV[4])
	redis.call('DEL', KEYS[9]) -- for others nobody was refused
end
return {'idle'}
