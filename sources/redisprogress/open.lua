-- Installs the fence: from now on every older token is refused.
--
-- KEYS  1 fence  2 done  3 lifted  4 tries  5 pending (without a list: fence again)
--       6 delayed (without a list: fence again)
-- ARGV  1 token  2 epoch  3 '1' with a list, '0' without
--       4 base to begin with if there is no fence yet
-- Result  {1, base, suspects below, writes, may be started below, store's clock in ms,
--          ms until the next delayed task or -1, how many of done, lifted and tries hold
--          anything}
--       | {0, epoch}  the same or a greater epoch stands under another token
-- Cost  O(1); O(left over) the first time
redis.call('HDEL', KEYS[1], '') -- not deny-oom: what follows runs in a full store too

local function str(n) return string.format('%.0f', n) end
local list = ARGV[3] == '1'
local f = redis.call('HMGET', KEYS[1], 't', 'e', 'b', 'n', 'h', 's', 'a')
local t, epoch, a = f[1] or '', tonumber(f[2] or '0'), f[7] or ''
local b, n, h, s = tonumber(f[3]), tonumber(f[4] or '0'), tonumber(f[5] or '0'), tonumber(f[6] or '0')

if t ~= ARGV[1] then
  if tonumber(ARGV[2]) <= epoch then return {0, epoch} end
  -- Positions of a list are never used again. Where there is no fence, or the list ends before
  -- what is known of it (somebody has cut it), what is there is counted from beyond
  -- all that an older life knew, and that is forgotten. Without a list they are the log's own,
  -- and ARGV[4] is where it goes on: what is left of an older life would pass what is open.
  local known = h
  if not b and not list then
    b = tonumber(ARGV[4])
    redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
  end
  for _, x in ipairs(redis.call('ZRANGE', KEYS[2], -1, -1)) do known = math.max(known, tonumber(x) + 1) end
  for _, x in ipairs(redis.call('HKEYS', KEYS[4])) do known = math.max(known, tonumber(x) + 1) end
  if list and (not b or b + redis.call('LLEN', KEYS[5]) < known) then
    b = math.max(b or tonumber(ARGV[4]), known)
    for _, x in ipairs(redis.call('HKEYS', KEYS[3])) do b = math.max(b, tonumber(x) + 1) end
    redis.call('DEL', KEYS[2])
  end
  if a == '' then
    if t ~= '' then s = math.max(s, h) end -- who has closed left no suspect, nor among the lifted
  else
    -- The last owner ran this one, alone, and was not heard of again. Only this
    -- task can have ended it, so nothing else becomes a suspect.
    local k, crashes, due, why = string.match(redis.call('HGET', KEYS[4], a) or '0 0 0 ', '^(%S+) (%d+) (%d+) (.*)$')
    redis.call('HSET', KEYS[4], a, k .. ' ' .. str(crashes + 1) .. ' ' .. due .. ' ' .. why)
  end
  -- What was cut away, or lost from a compacted log, was never ended by name, and the base
  -- has passed it: its tries, and the charge above, are nobody's.
  for _, x in ipairs(redis.call('HKEYS', KEYS[4])) do
    if tonumber(x) < b and redis.call('HEXISTS', KEYS[3], x) == 0 then redis.call('HDEL', KEYS[4], x) end
  end
  n = n + 1
  redis.call('HSET', KEYS[1], 't', ARGV[1], 'e', ARGV[2], 'b', str(b), 'n', str(n), 'h', str(h), 's', str(s), 'a', '')
  redis.call('HDEL', KEYS[1], 'w')
end

local now = redis.call('TIME')
local ms, due = now[1] * 1000 + math.floor(now[2] / 1000), -1
if list then
  local first = redis.call('ZRANGE', KEYS[6], 0, 0, 'WITHSCORES')
  if first[2] then due = math.max(0, tonumber(first[2]) - ms) end
end
return {1, b, s, n, h, ms, due, redis.call('EXISTS', KEYS[2], KEYS[3], KEYS[4])}
