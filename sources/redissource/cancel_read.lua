-- Reads what is to be cancelled, or was, and what time it is.
--
-- KEYS  1 {name}:cancel
-- Result  {milliseconds of the store's clock, ID, value, ID, value, ...}
-- Cost  O(what stands)
local t = redis.call('TIME')
local all = redis.call('HGETALL', KEYS[1])
table.insert(all, 1, string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000)))
return all
