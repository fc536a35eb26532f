-- Takes tasks out of pending, the oldest first, as asynq's own dequeue does one by one.
-- It stands behind settle.lua in one pipeline and is of the same number.
--
-- KEYS  1 fence  2 pending  3 active  4 lease  5 paused  6 scheduled  7 retry
--       8 completed  9 tries  10 groups
-- ARGV  1 token  2 number  3 most to take  4 how many of active the owner knows
--       5 prefix of task keys  6 '1': forward what is due first, and drop what was kept
--       for long enough, and tries of tasks that are gone  7 prefix of groups
--       8 about the most bytes of messages to take: at least one task comes
-- Result  {1, ms until the next delayed task (-1: none, -2: not asked),
--          1 (paused) + 2 (more is due at once), or 4 (these were active, unknown to the
--          owner), id, message, pending since, ..}; of a
--          task that has tries, store's clock in ms and tries follow the third, after spaces
--       | {0}  not admitted  | {2}  active has less than the owner knows
-- Cost  O(taken)
local f = redis.call('HMGET', KEYS[1], 't', 'n')
if f[1] ~= ARGV[1] or f[2] ~= ARGV[2] then return {0} end
local active, most, known, prefix = KEYS[3], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local bytes = tonumber(ARGV[8])
redis.call('HDEL', KEYS[1], '') -- not deny-oom: what follows runs in a full store too
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local out = {1, -2, 0}
local tried = redis.call('HLEN', KEYS[9]) > 0 -- were it no hash, the script would fail with tasks in hand
local told = {}
local function tell(id, from) -- false: it was deleted by hand, or its key holds something else, or it is there twice
  local v = redis.pcall('HMGET', prefix .. id, 'msg', 'pending_since', 'tried', 'state')
  if not v[1] then return false end
  -- One whose hash was deleted and that was enqueued again: a task, and more of active than its owner will ever know.
  if from == 'pending' and v[4] == 'active' and (told[id] or redis.call('LPOS', active, id)) then return false end
  told[id] = true
  bytes = bytes - #v[1]
  redis.call('HSET', prefix .. id, 'state', 'active')
  redis.call('HDEL', prefix .. id, 'pending_since')
  local since, tries = v[2] or '', tried and redis.call('HGET', KEYS[9], id)
  if tries and not v[3] then -- of one that had this id, and was deleted
    redis.call('HDEL', KEYS[9], id)
    tries = false
  end
  if tries then since = since .. ' ' .. string.format('%.0f', ms) .. ' ' .. tries end
  out[#out + 1], out[#out + 2], out[#out + 3] = id, v[1], since
  return true
end
local function call(command, key, args) -- in parts: a call has room for some thousands
  for i = 1, #args, 1000 do redis.call(command, key, unpack(args, i, math.min(i + 999, #args))) end
end

local have = redis.call('LLEN', active)
if have < known then return {2} end
if have > known then
  -- The reply that brought these was lost, another stream of this token had them, or a plain server has taken them.
  out[3] = 4
  local ids = redis.call('LRANGE', active, 0, have - known - 1)
  for i = #ids, 1, -1 do
    if not tell(ids[i]) then
      redis.call('LREM', active, 1, ids[i])
      redis.call('ZREM', KEYS[4], ids[i])
    end
  end
  return out
end
local more = 0
if ARGV[6] == '1' then
  local now = string.format('%.3f', ms / 1000)
  for _, delayed in ipairs({KEYS[6], KEYS[7]}) do
    local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, 100)
    if #due == 100 then more = 2 end
    for _, id in ipairs(due) do
      local group = redis.pcall('HGET', prefix .. id, 'group')
      if type(group) == 'string' and group ~= '' then
        redis.call('ZADD', ARGV[7] .. group, time[1], id)
        redis.call('SADD', KEYS[10], group) -- which asynq leaves out: it would not look there
        redis.call('HSET', prefix .. id, 'state', 'aggregating')
      elseif type(group) ~= 'table' then -- else its key holds something else, and there is no task
        redis.call('LPUSH', KEYS[2], id)
        redis.call('HSET', prefix .. id, 'state', 'pending', 'pending_since', time[1] .. string.format('%06d', time[2]) .. '000')
      end
      redis.call('ZREM', delayed, id) -- in the end: where the script fails, it is not lost
    end
  end
  local kept = redis.call('ZRANGEBYSCORE', KEYS[8], '-inf', now, 'LIMIT', 0, 100)
  if #kept == 100 then more = 2 end
  for _, id in ipairs(kept) do
    redis.call('ZREM', KEYS[8], id)
    redis.call('DEL', prefix .. id)
  end
  -- asynq's tools delete tasks, and know nothing of their tries: some are looked at each time.
  if tried then
    local some = redis.call('HSCAN', KEYS[9], redis.call('HGET', KEYS[1], 's') or '0', 'COUNT', 100)
    for i = 1, #some[2], 2 do
      local id = some[2][i]
      if redis.call('EXISTS', prefix .. id) == 0 then redis.call('HDEL', KEYS[9], id) end
    end
    redis.call('HSET', KEYS[1], 's', some[1])
  end
end
local ids, left = {}, false
out[3] = more
if redis.call('EXISTS', KEYS[5]) == 1 then
  out[3] = more + 1
elseif most > 0 then
  -- What is taken off pending is in no list if the script fails before it is in active.
  if redis.acl_check_cmd then
    for command, key in pairs({HSET = prefix, HDEL = prefix, LPUSH = active, RPUSH = KEYS[2]}) do
      if not redis.acl_check_cmd(command, key, '', '') then return redis.error_reply('NOPERM to ' .. command .. ' ' .. key) end
    end
  end
  ids = redis.call('RPOP', KEYS[2], most) or {}
end
if #ids > 0 then
  local taken, scores, score = {}, {}, string.format('%.0f', time[1] + 30)
  for i, id in ipairs(ids) do
    if bytes <= 0 then -- the rest goes back to where it was: many large ones are no answer
      local rest = {}
      for j = #ids, i, -1 do rest[#rest + 1] = ids[j] end
      call('RPUSH', KEYS[2], rest)
      left = true
      break
    end
    if tell(id, 'pending') then
      taken[#taken + 1] = id
      scores[#scores + 1], scores[#scores + 2] = score, id
    end
  end
  call('LPUSH', active, taken)
  call('ZADD', KEYS[4], scores)
end
if #ids < most and not left then
  out[2] = -1
  for _, delayed in ipairs({KEYS[6], KEYS[7]}) do
    local head = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
    if head[2] then
      local wait = math.max(0, math.ceil(tonumber(head[2]) * 1000 - ms))
      if out[2] < 0 or wait < out[2] then out[2] = wait end
    end
  end
end
return out
