-- How long lists are and how often their logs were written, for an owner of many that
-- wait.
--
-- KEYS  lists, then the fences of their logs, then what is delayed for some of them
-- ARGV  1 how many lists  2 what the bell of the first is to say, '': it is not rung  3... which of them each of the last keys is of, from 1
-- Result  one text: for each its length, -1 where a key holds something else or a delayed
--         task is due by the clock that is now, and its writes; then 1 if the bell was rung, else 0.
--         All are separated by spaces
-- Cost  O(KEYS)
local n, lists = {}, tonumber(ARGV[1])
for i = 1, lists do
  local len, writes = redis.pcall('LLEN', KEYS[i]), redis.pcall('HGET', KEYS[lists + i], 'n')
  n[2 * i - 1] = type(len) == 'number' and len or -1
  n[2 * i] = type(writes) == 'string' and writes or 0
end
if #ARGV > 2 then
  local now = redis.call('TIME')
  local ms = now[1] * 1000 + math.floor(now[2] / 1000)
  for j = 3, #ARGV do
    local head = redis.pcall('ZRANGE', KEYS[2 * lists + j - 2], 0, 0, 'WITHSCORES')
    if head[2] and tonumber(head[2]) <= ms then n[2 * ARGV[j] - 1] = -1 end
  end
end
n[2 * lists + 1] = 0
if ARGV[2] ~= '' then -- pcall: a user without the channels may sweep
  local heard = redis.pcall('PUBLISH', string.gsub(KEYS[lists + 1], 'fence$', 'bell'), ARGV[2])
  if type(heard) == 'number' then n[2 * lists + 1] = 1 end
end
return table.concat(n, ' ')
