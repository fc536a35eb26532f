-- What the scripts tell of what they change; it is put in front of ledger.lua. It only
-- defines.
--
-- KEYS[7] history: LIST, newest first, of at most KEPT entries. An entry is nine fields
-- with tabs between them:
--   TIME ms, clock of the store ms, what, session, its peer, other session, its peer,
--   detail, grants: p@e p@e<former epoch ...
-- what is one of
--   granted   session got grants that were nobody's
--   took      session got grants that other, whose lease ran out, had left behind
--   held      session said again what it holds; other was the owner on record
--   handed    other gave grants up, and session, who had asked for them, got them
--   released  session gave grants up, and nobody had asked for them
--   asked     session asked for grants of other's
--   joined, leaving, gone, expired (detail: ms without a word)   session did
--   sealed    (detail: version replicas) a roll
--   made      the name, by init
--   forgot    the store had no memory of the name, or half of one
--   restarted the store is another run
--   paused, resumed   the name
--   drained, recalled a peer, of no session
-- cost of telling: one LPUSH and one LTRIM for each call that changes something.

local KEPT, GRANTS = 2000, 64 -- entries; grants in one entry
local told, open = {}, {}

-- note tells of what; grant is one of several that are told together, or nil: that is told once in a call.
local function note(what, session, peer, other, otherpeer, detail, grant)
	local group = what .. ' ' .. session .. ' ' .. other
	local e = open[group]
	if not e or #e.grants >= GRANTS then
		e = {grants = {}, what = what, session = session, peer = peer, other = other, otherpeer = otherpeer, detail = detail}
		told[#told + 1], open[group] = e, e
	end
	e.grants[#e.grants + 1] = grant
end

-- tellAll writes what was noted at the instants raw and clock. A history that cannot be
-- written stops nobody.
local function tellAll(raw, clock)
	if #told == 0 then return end
	local lines = {}
	for i, e in ipairs(told) do
		local peer, otherpeer = string.gsub(e.peer, '%c', ' '), string.gsub(e.otherpeer, '%c', ' ')
		lines[i] = table.concat({raw, clock, e.what, e.session, peer, e.other, otherpeer, e.detail, table.concat(e.grants, ' ')}, '\t')
	end
	for i = 1, #lines, 500 do -- unpack has a limit
		redis.pcall('LPUSH', KEYS[7], unpack(lines, i, math.min(i + 499, #lines)))
	end
	redis.pcall('LTRIM', KEYS[7], 0, KEPT - 1)
end

