-- Everything a peer has to say, and everything that is the peer's (transition.Ledger.Sync).
--
-- KEYS    as in ledger.lua
-- ARGV    1 to 12 as in ledger.lua
--         13 session  14 live|leaving|gone  15 weight  16 peer
--         17 version of the newest roll known  18 highest number known
--         19 hold: p@e p@e ...  20 release: p@e ...  21 claim: p p ...
--         22 more partitions that may be the caller's: p p ...
--         23 what the caller says of itself once, its lease in ms first
--         24 what it says of itself now: weight well|unwell tag .... While it is unwell 15 is 0,
--         so that those who do not know of it give it nothing
--         25 how it goes from roll to roll: '-' one by one, else by the barrier, and the
--         version of the roll it has arrived at
--         26 its strategy, or ''  27 how many replicas it waits for
--         28... field, value of what sources have said of the name, if the caller knows: its kind first
-- result  {'config'}: the name has another configuration, nothing was done; {'barrier'}:
--         its peers go from roll to roll in another way; {'unsure'}: they did, and in this grace
--         it is not known whether any is left; or
--         {'full', stamp, count, due, expiry, grace, longest lease, behind, paused: 1 or 0, drained: 1 or 0,
--          mine: p@e p@e* ... (* somebody live waits), ascending,
--          how many words follow, which are for the next calls' 28... if this one has none
--          [, version, membership, replicas, line: 'index: partitions' or '']}
-- cost    ~15 commands, one HMGET over the partitions listed, one HSET or HDEL for each
--         that changes hands, one HGET for each session met. The whole of the
--         grants is read only if the caller holds some that it does not list.

redis.call('HDEL', KEYS[2], '-') -- a full store refuses a script whose first write needs memory, but not a later write
local refusal = agree()
if refusal then return refusal end
-- Sources say it at their start only: with the configuration lost the name would be of no kind, or of that of whoever comes first.
if not kind and ARGV[28] then redis.call('HSET', KEYS[1], unpack(ARGV, 28)) end
begin(true)

local me, wanted = ARGV[13], ARGV[14]

-- claims reports whether session s is one that asks for partitions.
local function claims(s)
	local says = redis.call('HGET', KEYS[8], s .. '.says') or row(s).weight
	return string.match(says, '^%d+') ~= '0'
end

-- agreed makes the peers of a name go from roll to roll in one way. The first decides, and
-- again when all have left. Who claims nothing has no part in it. The second result: it is not known.
local function agreed()
	if string.match(ARGV[24], '^0 ') then return true end
	local mode = ARGV[25] == '-' and 'no' or 'yes'
	local modes = {'no', 'yes'}
	local function decide()
		redis.call('HSET', KEYS[1], 'barrier', mode)
		set('mode', mode == 'yes' and 2 or 1)
		return true
	end
	local said, kept = redis.call('HGET', KEYS[1], 'barrier'), modes[meta.mode] -- either key may be lost
	local stands = said or kept
	if stands == mode then return said == kept or decide() end
	if not stands and mode == 'no' then return decide() end -- as much of a decision as the other, also in the next grace
	-- In a grace only those live for certain who have called in it: their leases outlast it.
	local unsure = stands and graceful()
	for _, s in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], str(unsure and meta.grace or meta.clock), '+inf')) do
		if s ~= me and member(s) and row(s).state ~= 'gone' and claims(s) then return false end
	end
	if unsure then return false, true end -- others may not have said so yet
	return decide()
end

local same, unsure = agreed()
if not same then
	commit()
	return {unsure and 'unsure' or 'barrier'}
end

local view, top = tonumber(ARGV[17]), tonumber(ARGV[18])
if top > meta.count then set('count', top) end

-- The sender is known from here on; its state only moves forward.
local rank = {expired = 0, live = 1, leaving = 2, gone = 3}
redis.call('HSET', KEYS[8], me, ARGV[23], me .. '.strategy', ARGV[26])
if ARGV[27] ~= '0' then redis.call('HSET', KEYS[8], me .. '.replicas', ARGV[27]) end
local mine = row(me)
local was = mine and mine.state or 'expired'
local now = rank[was] > rank[wanted] and was or wanted
if not mine then
	mine = {held = 0}
	rows[me] = mine
elseif was == 'expired' then
	set('expired', meta.expired - 1)
end
-- A membership is who is there, and what of the work is for whom.
local said, asked = unpack(redis.call('HMGET', KEYS[8], me .. '.says', me .. '.asks'))
local says = said ~= ARGV[24]
if says then redis.call('HSET', KEYS[8], me .. '.says', ARGV[24]) end
if (was == 'live') ~= (now == 'live') or (now == 'live' and says) then moved(meta.clock) end
-- The row of a session that is gone stays for the rest of its lease and no longer: a
-- late call of its earlier life finds it gone, and cannot revive it.
if now ~= 'gone' or was == 'expired' then
	redis.call('ZADD', KEYS[4], str(meta.clock + tonumber(ARGV[1])), me)
end
if was == 'live' and now == 'live' and mine.peer ~= ARGV[16] and drains(mine.peer) ~= drains(ARGV[16]) then moved(meta.clock) end
if now ~= was or mine.weight ~= ARGV[15] or mine.peer ~= ARGV[16] then
	mine.state, mine.weight, mine.peer = now, ARGV[15], ARGV[16]
	touch(me)
end
if was == 'expired' then
	note('joined', me, mine.peer, '', '', '')
end
if now ~= was and now ~= 'live' then
	note(now, me, mine.peer, '', '', '')
end

-- Arrivals only rise: a late call of the sender's earlier life takes nothing back.
local stood, stands = arrival(me), tonumber(ARGV[25]) or 0
if stands > meta.farthest then set('farthest', stands) end
if now == 'gone' then
	unarrive(me)
elseif stands > stood then
	set('arrived', meta.arrived + redis.call('HSET', KEYS[6], 'arrived:' .. me, ARGV[25]))
	local was, is = stood > 0 and stood < version, stands < version
	if was ~= is then await(meta.behind + (is and 1 or -1)) end
end

-- The sender knows a roll that the store does not: the store was set back. Only a new
-- roll, with a number above all that was seen, makes them agree again.
if view > version and meta.membership == basis then moved(meta.clock) end

-- partition -> {session, epoch, waiter}, or false; as far as looked at. The keys are
-- texts: under a number as large as a unit's some Luas make room for all before it.
local grants = {}

local function grant(v)
	if not v then return false end
	local session, epoch, waiter = string.match(v, '^(%S+) (%d+) ?(%S*)$')
	if not session then return false end -- an arrival
	return {session = session, epoch = tonumber(epoch), waiter = waiter}
end

local ids = {}
for list = 19, 22 do
	for p in string.gmatch(ARGV[list], '(%d+)%S*') do ids[#ids + 1] = p end
end
for p in string.gmatch(asked or '', '%d+') do ids[#ids + 1] = p end
for i = 1, #ids, 500 do -- unpack has a limit
	local last = math.min(i + 499, #ids)
	for j, v in ipairs(redis.call('HMGET', KEYS[6], unpack(ids, i, last))) do
		grants[ids[i + j - 1]] = grant(v)
	end
end

-- An answer lists all that is mine. The row says how many that are; only if the sender
-- did not list as many, the rest is looked for everywhere.
local found = 0
for _, g in pairs(grants) do
	if g and g.session == me then found = found + 1 end
end
if found ~= mine.held then
	local all = redis.call('HGETALL', KEYS[6])
	mine.held, changed[me] = 0, mine
	for i = 1, #all, 2 do
		local g = grant(all[i + 1])
		if g and g.session == me then
			grants[all[i]], mine.held = g, mine.held + 1
		end
	end
end

local hints = {}

-- tellOf notes that session got, gave up or asked for p under epoch; other is whose it
-- was under the epoch former.
local function tellOf(what, p, session, epoch, other, former)
	local r, o = row(session), other ~= '' and row(other)
	local g = p .. '@' .. str(epoch)
	if former then g = g .. '<' .. str(former) end
	note(what, session, r and r.peer or '', other, o and o.peer or '', '', g)
end

local function store(p, session, epoch, waiter)
	grants[p] = {session = session, epoch = epoch, waiter = waiter}
	local v = session .. ' ' .. str(epoch)
	if waiter ~= '' then v = v .. ' ' .. waiter end
	return redis.call('HSET', KEYS[6], p, v)
end

-- lose takes a grant off the account of its owner.
local function lose(s)
	local r = row(s)
	if not r then return end
	r.held, changed[s] = r.held - 1, r
	if r.state ~= 'expired' then
		touch(s)
	elseif r.held <= 0 then
		forget(s)
		set('expired', meta.expired - 1)
	end
end

local function give(p, session, epoch, what)
	if grants[p] then
		tellOf(what, p, session, epoch, grants[p].session, grants[p].epoch)
		lose(grants[p].session)
	else
		tellOf(what, p, session, epoch, '')
	end
	row(session).held = row(session).held + 1
	touch(session)
	set('held', meta.held + store(p, session, epoch, ''))
end

local function free(p) return not grants[p] or not member(grants[p].session) end

-- yield hands p to whoever waits for it, in the same step and with a new epoch.
local function yield(p)
	local w = grants[p].waiter
	if live(w) and not shut() then
		give(p, w, number(), 'handed')
		hints[w] = p
		return
	end
	tellOf('released', p, grants[p].session, grants[p].epoch, '')
	lose(grants[p].session)
	grants[p] = false
	set('held', meta.held - redis.call('HDEL', KEYS[6], p))
end

local function claim(p)
	local g = grants[p]
	if shut() then return end -- an owner that has not come back yet may be working on it; or nobody is to
	if free(p) then
		give(p, me, number(), grants[p] and 'took' or 'granted')
	elseif g.session ~= me and g.waiter ~= me then
		store(p, g.session, g.epoch, me)
		touch(g.session)
		tellOf('asked', p, me, g.epoch, g.session)
		hints[g.session] = p
	end
end

-- owned returns what is mine now, ascending.
local function owned()
	local list = {}
	for p, g in pairs(grants) do
		if g and g.session == me then list[#list + 1] = tonumber(p) end
	end
	table.sort(list)
	for i, p in ipairs(list) do list[i] = str(p) end
	return list
end

if now ~= 'gone' then
	for p, e in string.gmatch(ARGV[19], '(%d+)@(%d+)') do
		e = tonumber(e)
		if free(p) or grants[p].epoch < e then give(p, me, e, 'held') end
	end
end
for p, e in string.gmatch(ARGV[20], '(%d+)@(%d+)') do
	local g = grants[p]
	if g and g.session == me and g.epoch == tonumber(e) then yield(p) end
end
if now == 'gone' then
	for _, p in ipairs(owned()) do yield(p) end -- its last word: it works on nothing
elseif now == 'live' then
	for p in string.gmatch(ARGV[21], '%d+') do claim(p) end
end

-- Who does not claim any longer what it asked for waits no longer. What the sender waits
-- for is kept beside what it says of itself, since the grants are never looked through. A
-- late call of it may ask once more for what it has given up: that makes another stamp,
-- so that the next one is no quiet Sync and puts it right.
local waits, waiting = {}, {}
if now == 'live' then
	for p in string.gmatch(ARGV[21], '%d+') do
		if grants[p] and grants[p].waiter == me then waits[#waits + 1], waiting[p] = p, true end
	end
end
waits = table.concat(waits, ' ')
if waits ~= (asked or '') then
	for p in string.gmatch(asked or '', '%d+') do
		local g = grants[p]
		if g and g.waiter == me and not waiting[p] then
			store(p, g.session, g.epoch, '')
			if member(g.session) then touch(g.session) end
		end
	end
	if waits == '' then
		redis.call('HDEL', KEYS[8], me .. '.asks')
	else
		redis.call('HSET', KEYS[8], me .. '.asks', waits)
	end
	touch(me)
end

local list = owned()
for i, p in ipairs(list) do
	local g = grants[p]
	list[i] = p .. '@' .. str(g.epoch)
	if g.waiter ~= me and live(g.waiter) then list[i] = list[i] .. '*' end
end
local answer = {'full', stamp(me), times()}
answer[#answer + 1] = awaited(view)
answer[#answer + 1] = meta.paused > 0 and '1' or '0'
answer[#answer + 1] = drains(mine.peer) and '1' or '0'
answer[#answer + 1] = table.concat(list, ' ')
local words = {} -- of what sources have said
if kind and not ARGV[28] then
	local fields = {'kind', 'queues', 'list', 'topic', 'progress', 'group'}
	for i, v in ipairs(redis.call('HMGET', KEYS[1], unpack(fields))) do
		if v then
			words[#words + 1] = fields[i]
			words[#words + 1] = v
		end
	end
end
answer[#answer + 1] = str(#words)
for _, word in ipairs(words) do answer[#answer + 1] = word end
if version > view then
	answer[#answer + 1] = str(version)
	answer[#answer + 1] = str(basis)
	answer[#answer + 1] = replicas
	answer[#answer + 1] = redis.call('HGET', KEYS[5], me) or ''
end
commit()
if opened then tell(ARGV[6], 'open') end
for s, p in pairs(hints) do tell(ARGV[6] .. ':' .. s, p) end
return answer
