-- Installs the fence: from now on every older token is refused. What the last owner
-- had goes back to the head of pending, the oldest first, and sets of tasks that it was
-- making a task of go back to their groups.
--
-- KEYS  1 fence  2 pending  3 active  4 lease  5 tries  6 suspects  7 archived
--       8 aggregation sets  9 groups
-- ARGV  1 token  2 epoch  3 prefix of task keys  4 crash limit  5 prefix of groups
-- Result  {1, request number, suspects, {} | {id, reason} of what was archived}
--       | {0, epoch}  the same or a greater epoch stands under another token
-- Cost  O(left over, and tasks that were tried)
redis.call('HDEL', KEYS[1], '') -- not deny-oom: what follows runs in a full store too

local function str(n) return string.format('%.0f', n) end
local f = redis.call('HMGET', KEYS[1], 't', 'e', 'n', 'a')
local t, epoch, n, a = f[1] or '', tonumber(f[2] or '0'), f[3] or '0', f[4] or ''
local now = redis.call('TIME')
local buried = {}

-- The same token again changes nothing: its owner may be at work, and this call late.
if t ~= ARGV[1] then
  if tonumber(ARGV[2]) <= epoch then return {0, epoch} end
  -- Were one of these something else, the script would fail between a charge, or what it takes out of
  -- active, and the rest, each time that it is said again.
  redis.call('LLEN', KEYS[2])
  redis.call('ZCARD', KEYS[4])
  redis.call('ZCARD', KEYS[7])
  redis.call('SCARD', KEYS[6])
  redis.call('ZCARD', KEYS[8])
  redis.call('SCARD', KEYS[9])
  if t ~= '' then
    -- The last owner was not heard of again.
    local ids, alone = redis.call('LRANGE', KEYS[3], 0, -1), false
    for _, id in ipairs(ids) do alone = alone or id == a end
    if alone then
      -- It ran this one and nothing else: only this task can have ended it.
      local k, crashes, due, why = string.match(redis.call('HGET', KEYS[5], a) or '0 0 0 ', '^(%S+) (%d+) (%d+) (.*)$')
      crashes = tonumber(crashes) + 1
      redis.call('HSET', KEYS[5], a, k .. ' ' .. str(crashes) .. ' ' .. due .. ' ' .. why)
      local msg = redis.pcall('HGET', ARGV[3] .. a, 'msg')
      if type(msg) ~= 'string' then msg = nil end -- its key holds something else, or it was deleted by hand
      if crashes >= tonumber(ARGV[4]) and msg then
        local reason = 'its peer crashed ' .. str(crashes) .. ' times while it ran alone'
        redis.call('LREM', KEYS[3], 0, a)
        redis.call('ZREM', KEYS[4], a)
        redis.call('ZADD', KEYS[7], now[1], a)
        -- field 7 of the message is its last error
        redis.call('HSET', ARGV[3] .. a, 'msg', msg .. string.char(58, #reason) .. reason, 'state', 'archived')
        redis.call('HDEL', KEYS[5], a)
        redis.call('SREM', KEYS[6], a)
        buried = {a, reason}
      elseif msg then
        redis.call('HSET', ARGV[3] .. a, 'tried', '1')
      end
    else
      for _, id in ipairs(ids) do redis.call('SADD', KEYS[6], id) end
    end
  end
  giveback(KEYS[2], KEYS[3], KEYS[4], ARGV[3])
  regroup(KEYS[8], KEYS[9], ARGV[5], '+inf')
  for _, id in ipairs(redis.call('SMEMBERS', KEYS[6])) do
    if redis.call('EXISTS', ARGV[3] .. id) == 0 then redis.call('SREM', KEYS[6], id) end -- asynq's tools deleted it
  end
  for _, id in ipairs(redis.call('HKEYS', KEYS[5])) do
    -- One that waited for its retry and was archived by hand waits for nothing: who runs it again means now.
    local state = redis.pcall('HGET', ARGV[3] .. id, 'state')
    if not state and redis.call('EXISTS', ARGV[3] .. id) == 0
        or state == 'archived' and not string.match(redis.call('HGET', KEYS[5], id), '^%S+ %d+ 0 ') then
      redis.call('HDEL', KEYS[5], id)
    end
  end
  n = str(tonumber(n) + 1)
  redis.call('HSET', KEYS[1], 't', ARGV[1], 'e', ARGV[2], 'n', n, 'a', '')
end
return {1, tonumber(n), redis.call('SMEMBERS', KEYS[6]), buried}
