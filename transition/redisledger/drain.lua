-- Says that a peer is to have nothing, or that it is to have its share again, and makes a roll due
-- that goes by it where the peer is there. Said again it changes nothing.
--
-- KEYS    as in ledger.lua
-- ARGV    1 to 6 as in ledger.lua  7 the peer's id  8 the line that says so (see ledger.lua), or '': it is recalled
--         9 most lines
-- result  {'said'}; {'stands'}: it is as asked for; {'none'}: nobody has made the name yet; {'many'}: there are
--         so many lines already
-- cost    ~13 commands; O(sessions)

local total, text = unpack(redis.call('HMGET', KEYS[1], 'total', 'drained'))
local raw, kept = unpack(redis.call('HMGET', KEYS[2], 'raw', 'drained'))
if not total then return {'none'} end
local lines, stands = {}, false
for line in string.gmatch(text or kept or '', '[^\n]+') do
	if drainedOf(line) == ARGV[7] then stands = true else lines[#lines + 1] = line end
end
local wanted = ARGV[8] ~= ''
if stands == wanted then return {'stands'} end
if wanted then
	if #lines >= tonumber(ARGV[9]) then return {'many'} end
	lines[#lines + 1] = ARGV[8]
end
redis.call('HDEL', KEYS[2], '-') -- a full store refuses a script whose first write needs memory, but not a later write
drained = table.concat(lines, '\n')
redis.call('HSET', KEYS[1], 'drained', drained)
-- As in require.lua: a store that knows nothing is for the first peer to begin.
if not raw then return {'said'} end
begin(true)
for _, v in ipairs(redis.call('HVALS', KEYS[3])) do
	if string.match(v, '^live %d+ %d+ %d+ (.*)$') == ARGV[7] then
		moved(meta.clock)
		break
	end
end
note(wanted and 'drained' or 'recalled', '', ARGV[7], '', '', '')
commit()
tell(ARGV[6], 'due')
return {'said'}
