-- Who may fetch and settle, and whether anything waits, for an observer.
--
-- KEYS    fence and log of each partition; the fence again where the log is elsewhere
-- result  one text: token or '' and length of the log of each, on a line each
-- cost    2 O(1) commands for each partition
local out = {}
for i = 1, #KEYS, 2 do
	local token, n = redis.pcall('HGET', KEYS[i], 't'), redis.pcall('LLEN', KEYS[i + 1])
	out[i] = type(token) == 'string' and token or ''
	out[i + 1] = type(n) == 'number' and n or 0
end
return table.concat(out, '\n')
