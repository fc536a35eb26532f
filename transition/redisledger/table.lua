-- Writes who owns which units, as the grants stand at this moment: for people and other
-- programs. Whoever calls it, however late, writes the truth, so that nobody's row can
-- outlive what he owns.
--
-- KEYS    1 sessions  2 transition  3 the list of the units, a set or a list  4 the table
-- ARGV    unit, partition, for every unit the caller knows, sorted
-- result  1; 0 if the list has a unit that the caller does not know: nothing is written. What
--         partition.CheckUnit refuses is none, and nobody knows it
-- cost    O(units + peers)
--
-- table   peer -> its units as a JSON list, [] where it has none,  _ -> the units that nobody
--         owns, if there are any. Sessions that take part under one peer id have a row each:
--         the id, # and the first eight characters of the session

local kind = redis.call('TYPE', KEYS[3])
if type(kind) == 'table' then kind = kind.ok end
local listed = {}
if kind == 'set' then
	listed = redis.call('SMEMBERS', KEYS[3])
elseif kind == 'list' then
	listed = redis.call('LRANGE', KEYS[3], 0, -1)
end
local known, stands = {}, {}
for i = 1, #ARGV, 2 do known[ARGV[i]] = true end
local function is_unit(s)
	return s ~= '' and #s <= 65536
		and not (string.find(s, '\n', 1, true) or string.find(s, '\r', 1, true) or string.find(s, '\0', 1, true))
end
for _, unit in ipairs(listed) do
	if not known[unit] and is_unit(unit) then return 0 end
	stands[unit] = true
end

local rows, peers, present, of = {}, {}, {}, {}
local sessions = redis.call('HGETALL', KEYS[1])
for i = 1, #sessions, 2 do
	local state, peer = string.match(sessions[i + 1], '^(%a+) %d+ %d+ %d+ (.*)$')
	if state and state ~= 'expired' then
		peers[sessions[i]] = peer
		if state ~= 'gone' then
			present[sessions[i]] = peer
			of[peer] = (of[peer] or 0) + 1
		end
	end
end
for session, peer in pairs(present) do
	if of[peer] > 1 then peers[session] = peer .. '#' .. string.sub(session, 1, 8) end
	rows[peers[session]] = {}
end
for i = 1, #ARGV, 2 do
	if stands[ARGV[i]] then
		local grant = redis.call('HGET', KEYS[2], ARGV[i + 1])
		local owner = grant and peers[string.match(grant, '^(%S+)')] or '_'
		rows[owner] = rows[owner] or {}
		table.insert(rows[owner], ARGV[i])
	end
end

local before = redis.call('HGETALL', KEYS[4])
for i = 1, #before, 2 do
	if not rows[before[i]] then redis.call('HDEL', KEYS[4], before[i]) end
end
for peer, units in pairs(rows) do
	local row = '[]' -- an empty table is {} to cjson
	if #units > 0 then row = cjson.encode(units) end
	redis.call('HSET', KEYS[4], peer, row)
end
return 1
