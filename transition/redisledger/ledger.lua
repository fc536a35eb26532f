-- What the scripts that change the ledger share; it is put in front of each of them.
-- It only defines: nothing runs before the script itself.
--
-- KEYS  1 config  2 meta  3 sessions  4 leases  5 roll  6 transition; but for a quiet
--       Sync, which is to stay small, also 7 history  8 peers
-- ARGV  1 lease ms  2 clock step ms  3 longest lease ms that the caller knows of
--       4 settle ms
--       5 doubt: why this may be another run of the store than the one that answered
--         the caller last: 0 nothing, 1 it lost a connection or a call, 2 the server
--         did not know the script
--       6 channel of the events
--       7 protocols that the caller speaks, the one to write first  8 partitions  9 hash  10 hash of the units' names  11 the names
--       12 grows: 1 if the caller's broker may have got more partitions
--         (7 to 12 only where agree is called)
--
-- meta         raw (TIME at the last call, ms) clock (the store's own, ms) step (least
--              clock step of all) longest (lease of all, ms) count (last number given out) stamp (last
--              stamp given out) membership (number of its last change) changed (clock at
--              the first change no roll knows) grace (clock at its end) held (grants)
--              arrived (sessions at a barrier or past one) behind (those of them that stand
--              before an older roll than the newest) clear (clock at which nobody was any more)
--              farthest (the newest roll that anybody has arrived at; newer than the roll in a store that was set back)
--              mode (how peers go from roll to roll, as the configuration says too: 1 one by one, 2 by the barrier)
--              expired (rows of that state) untold (what a quiet Sync could not tell
--              the history: 1 restarted, 2 forgot) run (id of the server's run) since (TIME of
--              the last doubt about the store's memory; greater with each) requires (protocol
--              and requirements of the configuration) paused (the number of the pause that the
--              configuration says; 0: none) drained (the peers that are, as the configuration says: since when
--              in ms, id and why, with tabs between them, one a line)
-- sessions     session -> state weight stamp held peer
-- leases       session by the clock at which its lease ends
-- roll         session -> index: partitions,  session.peer -> weight up|down peer,
--              _ -> version membership replicas,  _.peer -> seat since session tag,... peer
--              of those who have a seat or whose seat is kept, one a line
-- transition   partition -> session epoch waiter, and where peers go from roll to roll by
--              the barrier arrived:session -> version of the roll it has arrived at
-- history      see history.lua
-- peers        session -> what its peer says of itself, lease ms first,
--              session.says -> weight well|unwell tag ..., as it is now,
--              session.asks -> the partitions that it stands for as who waits,
--              session.strategy -> how it shares out the partitions when it seals a roll,
--              session.replicas -> how many replicas it waits for; absent: none

local function str(n) return string.format('%.0f', n) end -- tostring rounds 15 digits

local numbers = {'raw', 'clock', 'step', 'longest', 'count', 'stamp', 'membership', 'changed', 'grace', 'held', 'expired', 'untold',
	'arrived', 'behind', 'clear', 'farthest', 'mode', 'paused'}
local meta, touched = {}, false
local run, since
local requires -- protocol and requirements: nil where nobody looked, false where the configuration has none
local pausing -- since when and why the name is paused: the same
local drained -- the peers that are: the same
local kind -- of work that the name has: the same
local version, basis, replicas = 0, 0, '0' -- of the roll; basis is the membership it was built on
local rows, changed = {}, {}
local opened = false -- the barrier before the newest roll, by this call

local function set(field, value)
	meta[field], touched = value, true
end

-- number gives out the next of the one count that grants, membership changes and rolls
-- share.
local function number()
	set('count', meta.count + 1)
	return meta.count
end

-- row returns what is known of session s, or false.
local function row(s)
	if rows[s] == nil then
		local v = redis.call('HGET', KEYS[3], s)
		rows[s] = false
		if v then
			local state, weight, stamp, held, peer = string.match(v, '^(%a+) (%d+) (%d+) (%d+) (.*)$')
			rows[s] = {state = state, weight = weight, stamp = tonumber(stamp), held = tonumber(held), peer = peer}
		end
	end
	return rows[s]
end

-- member reports whether s is a session whose lease has not run out.
local function member(s)
	local r = row(s)
	return r and r.state ~= 'expired'
end

local function live(s)
	local r = s ~= '' and row(s)
	return r and r.state == 'live'
end

-- touch says that what belongs to s, or who waits for it, is another than its last
-- answer said: a quiet Sync will not do.
local function touch(s)
	local r = row(s)
	set('stamp', meta.stamp + 1)
	r.stamp, changed[s] = meta.stamp, r
end

local function forget(s)
	redis.call('HDEL', KEYS[3], s)
	rows[s], changed[s] = false, nil
end

-- moved numbers a change of membership that counts from the instant at.
local function moved(at)
	if meta.membership ~= basis then at = math.min(at, meta.changed) end
	set('changed', at)
	set('membership', number())
end

-- graceful reports whether nobody may gain a partition now, lest somebody works on it whom the store
-- has forgotten.
local function graceful() return meta.clock < meta.grace end

-- shut reports whether nobody is to have a partition that he does not have already.
local function shut() return graceful() or meta.paused > 0 end

-- agree compares the configuration, or writes it where there is none. It returns nil
-- or the reply that refuses the caller. To be called before anything is changed.
local function agree()
	local protocol, total, hash, units, asked, said, out, work = unpack(redis.call('HMGET', KEYS[1], 'protocol', 'total', 'hash', 'units', 'requires', 'paused', 'drained', 'kind'))
	requires = asked and (protocol or '') .. ' ' .. asked
	pausing, drained, kind = said, out, work
	if not total then
		redis.call('HSET', KEYS[1], 'protocol', string.match(ARGV[7], '^%d+'), 'total', ARGV[8], 'hash', ARGV[9],
			'units', ARGV[10], 'unitnames', ARGV[11])
		return nil
	end
	if not string.find(' ' .. ARGV[7] .. ' ', ' ' .. (protocol or '') .. ' ', 1, true) or hash ~= ARGV[9] or (units and units ~= ARGV[10]) or
		(total ~= ARGV[8] and ARGV[12] ~= '1') then
		return {'config'}
	end
	-- A producer that came first had nothing to say about units.
	if not units then redis.call('HSET', KEYS[1], 'units', ARGV[10], 'unitnames', ARGV[11]) end
	if tonumber(ARGV[8]) > tonumber(total) then redis.call('HSET', KEYS[1], 'total', ARGV[8]) end
	return nil
end

-- arrival returns the roll that session s has arrived at; 0: none.
local function arrival(s)
	return meta.arrived > 0 and tonumber(redis.call('HGET', KEYS[6], 'arrived:' .. s) or 0) or 0
end

-- await notes that n are behind.
local function await(n)
	if n == meta.behind then return end
	if n == 0 then
		set('clear', meta.clock)
		opened = true
	end
	set('behind', n)
end

-- unarrive forgets at which roll session s has arrived.
local function unarrive(s)
	local at = arrival(s)
	if at == 0 then return end
	set('arrived', meta.arrived - redis.call('HDEL', KEYS[6], 'arrived:' .. s))
	if at < version then await(meta.behind - 1) end
end

-- look counts anew who is behind, where the roll is another. Only where there is a
-- barrier; O(sessions). Else each arrival keeps the count: thousands arrive at once.
local function look()
	local behind = 0
	local all = meta.arrived > 0 and redis.call('ZRANGE', KEYS[4], 0, -1) or {}
	for i, s in ipairs(all) do all[i] = 'arrived:' .. s end
	for i = 1, #all, 500 do -- unpack has a limit
		for _, at in ipairs(redis.call('HMGET', KEYS[6], unpack(all, i, math.min(i + 499, #all)))) do
			if at and tonumber(at) < version then behind = behind + 1 end
		end
	end
	await(behind)
end

-- unask takes session s off all that it waits for.
local function unask(s)
	local asked = redis.call('HGET', KEYS[8], s .. '.asks')
	for p in string.gmatch(asked or '', '%d+') do
		local v = redis.call('HGET', KEYS[6], p)
		if v and string.match(v, '^%S+ %d+ (%S+)$') == s then
			redis.call('HSET', KEYS[6], p, string.match(v, '^%S+ %d+'))
		end
	end
end

-- expired tells that session s, of row r, has been silent for too long, and forgets
-- what it said of itself.
local function expired(s, r)
	if r and r.state ~= 'gone' and r.state ~= 'expired' then
		local lease = string.match(redis.call('HGET', KEYS[8], s) or '', '^%d+') or '0'
		local late = meta.clock - tonumber(redis.call('ZSCORE', KEYS[4], s) or meta.clock)
		note('expired', s, r.peer, '', '', str(late + tonumber(lease)))
	end
	unask(s)
	redis.call('HDEL', KEYS[8], s, s .. '.says', s .. '.asks', s .. '.strategy', s .. '.replicas')
end

-- hear takes in that somebody has such a lease. If the store may have forgotten him, the grace
-- must last for as long as he trusts it.
local function hear(lease)
	if lease <= meta.longest then return end
	set('longest', lease)
	if graceful() then set('grace', math.max(meta.grace, meta.clock + lease)) end
end

-- leases returns the least and the longest lease of all sessions; the least is 0 if somebody
-- has not told his. O(sessions)
local function leases()
	local least, longest = math.huge, 0
	local all = redis.call('ZRANGE', KEYS[4], 0, -1)
	for i = 1, #all, 500 do -- unpack has a limit
		for _, terms in ipairs(redis.call('HMGET', KEYS[8], unpack(all, i, math.min(i + 499, #all)))) do
			local lease = tonumber(string.match(terms or '', '^%d+') or '0')
			least, longest = math.min(least, lease), math.max(longest, lease)
		end
	end
	return least, longest
end

-- widen makes the least clock step and the longest lease those of the caller and of all
-- sessions: nobody trusts a lease that is over. They stay as they are if somebody has not told
-- his lease.
local function widen()
	local lease, step = tonumber(ARGV[1]), tonumber(ARGV[2])
	if step <= meta.step and lease >= meta.longest then return end
	local least, longest = leases()
	if least == 0 then return end
	set('step', math.min(step, math.floor(least / 4)))
	set('longest', math.max(lease, longest))
end

-- reap removes sessions past their lease, a few at a time. What they held stays where
-- it is: a grant of nobody known is free. Who held something keeps a row that says
-- how much, so that a session which comes back is known to own more than it lists.
local function reap()
	local over = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', '(' .. str(meta.clock), 'LIMIT', 0, 8)
	for _, s in ipairs(over) do
		local r = row(s)
		expired(s, r)
		redis.call('ZREM', KEYS[4], s)
		unarrive(s)
		-- The lease was patience enough: a roll without the dead is due at once.
		if live(s) then moved(meta.clock - tonumber(ARGV[4])) end
		if r and r.held > 0 then
			r.state, changed[s] = 'expired', r
			set('expired', meta.expired + 1)
		else
			forget(s)
		end
	end
	if #over > 0 then widen() end
end

-- lost reports whether the store has half a memory, because keys were evicted or
-- deleted by hand, and makes it none: with the grants gone everything would look free, as
-- with sessions and leases gone together; with the leases gone nobody would ever expire.
-- To be asked before anything is given.
local function lost()
	local kept, known = meta.held + meta.arrived, redis.call('HLEN', KEYS[3])
	if redis.call('HLEN', KEYS[6]) == kept and known == redis.call('ZCARD', KEYS[4]) + meta.expired and
		(known > 0 or kept == 0) then
		return false
	end
	redis.call('DEL', KEYS[3], KEYS[4], KEYS[5], KEYS[6])
	note('forgot', '', '', '', '', '')
	for _, field in ipairs({'membership', 'changed', 'held', 'expired', 'arrived', 'behind', 'clear', 'farthest'}) do set(field, 0) end
	return true
end

-- remember tells what a quiet Sync could not, and forgets whom a store without memory
-- knew. Who is known after a restart may have come with an older build, which keeps no
-- longest lease.
local function remember()
	if #told == 0 and meta.untold > 0 then note(meta.untold == 2 and 'forgot' or 'restarted', '', '', '', '', '') end
	if meta.untold > 0 then set('untold', 0) end
	if #told == 0 then return end
	if told[1].what == 'forgot' then
		redis.call('DEL', KEYS[8])
	else
		local _, longest = leases()
		hear(longest)
	end
end

-- overdue reports whether there is somebody to reap.
local function overdue()
	return not graceful() and #redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', '(' .. str(meta.clock), 'LIMIT', 0, 1) > 0
end

-- recall keeps what partitions ask of their owners, and who is drained, beside the configuration too: with that key
-- lost they would go to anybody. It may be long, so that it is read by no quiet Sync and written only where it differs.
local function recall()
	if requires == nil and drained == nil then return end
	local kept, out = unpack(redis.call('HMGET', KEYS[2], 'requires', 'drained'))
	if drained and drained ~= out then
		redis.call('HSET', KEYS[2], 'drained', drained)
	elseif drained == false and out and out ~= '' then
		redis.call('HSET', KEYS[1], 'drained', out)
		drained = out
		moved(meta.clock) -- the roll may have been made without
	end
	if requires == nil then return end
	local protocol, asked = string.match(kept or '', '^(%d+) (.+)$')
	if requires and requires ~= kept then
		redis.call('HSET', KEYS[2], 'requires', requires)
	elseif not requires and asked then
		redis.call('HSET', KEYS[1], 'protocol', protocol, 'requires', asked)
		moved(meta.clock) -- the roll may have been made without
	end
end

-- remind keeps what the configuration says of a pause beside it too, by its number, which a quiet
-- Sync can read.
local function remind()
	if pausing and meta.paused == 0 then
		set('paused', number())
	elseif pausing == false and meta.paused > 0 then
		redis.call('HSET', KEYS[1], 'paused', str(meta.raw))
	end
end

-- drainedOf returns the id of the peer that a line of drained is about.
local function drainedOf(line) return string.match(line, '^[^\t]*\t([^\t]+)') end

-- drains reports whether a peer with that id is to have nothing.
local function drains(peer)
	if not drained or drained == '' then return false end
	for line in string.gmatch(drained, '[^\n]+') do
		if drainedOf(line) == peer then return true end
	end
	return false
end

-- begin reads the store's state, advances its clock, looks whether its memory can be
-- trusted, and reaps. A caller that is given nothing need not be thorough. 8 to 12
-- commands, O(log n) of n sessions; 3 more for each session whose lease ran out, and O(n)
-- then if somebody had another lease than the caller, and after a restart.
local function begin(thorough)
	local time = redis.call('TIME')
	local raw = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
	local stored = redis.call('HMGET', KEYS[2], 'run', 'since', unpack(numbers))
	for i, field in ipairs(numbers) do meta[field] = tonumber(stored[i + 2] or 0) end
	run, since = stored[1] or '', stored[2]
	local whole = stored[3]

	-- The clock goes on by what passed since the last call, but by no more than a step:
	-- a jump of the server's clock, an outage and a stopped server cannot make every
	-- lease run out at once, and a jump back stops nothing.
	local step = tonumber(ARGV[2])
	if whole then
		-- Who has a longer step than another would let the clock jump farther than the
		-- other allowed for when it trusted its lease. The least counts, until
		-- whoever sent it was removed: see reap.
		if step < meta.step then set('step', step) end
		meta.clock = meta.clock + math.min(math.max(raw - meta.raw, 0), meta.step)
	else
		set('step', step)
		meta.clock = raw
		redis.call('DEL', KEYS[3], KEYS[4], KEYS[5], KEYS[6])
		note('forgot', '', '', '', '', '')
	end
	meta.raw = raw
	hear(tonumber(ARGV[1]))

	-- A store that was restarted or failed over may have forgotten the last grants. Its
	-- run id tells; a user who may not ask for it has the doubts of his client; an
	-- emulator, which has no runs, does not forget unless it begins anew, without scripts.
	local doubt = ARGV[5] == '2'
	local info = redis.pcall('INFO', 'server')
	local at = type(info) == 'string' and string.find(info, 'run_id:', 1, true)
	if at then
		local id = string.sub(info, at + 7, at + 46)
		doubt, run = id ~= run, id
	elseif type(info) == 'string' or not string.find(info.err, 'not supported', 1, true) then
		doubt = ARGV[5] ~= '0'
	end
	if not whole or (thorough and lost()) or doubt then
		-- What was forgotten may be a grant of whoever has the longest lease.
		set('grace', math.max(meta.grace, meta.clock + math.max(meta.longest, tonumber(ARGV[3]))))
		since = str(math.max(raw, tonumber(since or 0) + 1))
		if #told == 0 then note('restarted', '', '', '', '', '') end
	end
	-- Else all who trust their lease are known, and what the caller has heard of others is old.
	if graceful() then hear(tonumber(ARGV[3])) end

	local head = redis.call('HGET', KEYS[5], '_')
	if head then
		version, basis, replicas = string.match(head, '^(%d+) (%d+) (%d+)')
		version, basis = tonumber(version), tonumber(basis)
	end
	if not KEYS[7] then return end
	recall()
	remind()
	remember()
	if not graceful() then reap() end
	if meta.behind > 0 and not head then look() end -- the roll was lost: nobody is before an older one
end

-- commit writes what changed.
local function commit()
	if KEYS[7] then
		tellAll(str(meta.raw), str(meta.clock))
	elseif #told > 0 then
		set('untold', told[1].what == 'forgot' and 2 or 1)
	end
	for s, r in pairs(changed) do
		redis.call('HSET', KEYS[3], s, r.state .. ' ' .. r.weight .. ' ' .. str(r.stamp) .. ' ' .. str(r.held) .. ' ' .. r.peer)
	end
	if not touched then
		redis.call('HSET', KEYS[2], 'raw', str(meta.raw), 'clock', str(meta.clock))
		return
	end
	local args = {'run', run, 'since', since}
	for _, field in ipairs(numbers) do
		args[#args + 1] = field
		args[#args + 1] = str(meta[field])
	end
	redis.call('HSET', KEYS[2], unpack(args))
end

-- stamp names everything an answer to s depends on beside the clock and who is behind.
local function stamp(s)
	return since .. ':' .. str(meta.membership) .. ':' .. str(version) .. ':' .. str(row(s).stamp) .. ':' .. str(meta.paused)
end

-- awaited returns how many are behind, for one who knows the roll view. Whoever knows of a newer
-- roll than the store, or works under one, is under another than the store's: nobody goes on before the next, which is due.
local function awaited(view) return str(math.max(view, meta.farthest) > version and meta.behind + 1 or meta.behind) end

-- times returns the count and what depends on the clock: in how many ms a roll is due,
-- or '' if none is, as while somebody is behind: one more roll would help nobody; in how many ms the next lease has run out; what is left of the grace;
-- and the longest lease of all.
local function times()
	local due, left = '', 0
	if graceful() then
		left = meta.grace - meta.clock
	elseif meta.membership ~= basis and meta.behind == 0 then
		due = str(math.max(meta.changed, meta.clear) + tonumber(ARGV[4]) - meta.clock)
	end
	local first = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')
	-- Reaped is what is past its lease, not at its end.
	local expiry = math.max(tonumber(first[2] or meta.clock) + 1 - meta.clock, left, 1)
	return str(meta.count), due, str(expiry), str(left), str(meta.longest)
end

-- tell publishes a hint. A user who may not publish loses time, not the call.
local function tell(channel, what) redis.pcall('PUBLISH', channel, what) end
