-- How long lists are and how often their logs were written, for an owner of many that
-- wait.
--
-- KEYS  lists, then the fences of their logs
-- Result  one text: for each its length, -1 where a key holds something else, and its
--         writes, all separated by spaces
-- Cost  O(KEYS)
local n, lists = {}, #KEYS / 2
for i = 1, lists do
  local len, writes = redis.pcall('LLEN', KEYS[i]), redis.pcall('HGET', KEYS[lists + i], 'n')
  n[2 * i - 1] = type(len) == 'number' and len or -1
  n[2 * i] = type(writes) == 'string' and writes or 0
end
return table.concat(n, ' ')
