-- Head of each round trip of an owner: admits it, numbers it, and records what became
-- of tasks. A number below the last one is late, and void with all that follows it in
-- the pipeline. Each effect is tied to the task being active: said again, it changes
-- nothing.
--
-- KEYS  1 fence  2 pending  3 active  4 lease  5 retry  6 archived  7 completed
--       8 tries  9 suspects  10 processed today  11 failed today  12 processed
--       13 failed  14.. unique locks
-- ARGV  1 token  2 number of this request  3 last number answered  4 prefix of task keys
--       5 id about to run alone and its tries, or ''  6 '1': extend the leases
--       7 when today's counters expire
--       8 how many done, locked, kept, retries, requeues, dead follow, or ''
--       per done: id
--       per locked: id; its lock is KEYS[14..]
--       per kept: id, message, seconds to keep it, '1': the next lock behind those is its own
--       per retry: id, tries ('5', or '5-3' if three of them waited; with a minus before:
--       the run is not counted as a failure), delay in ms, error, message
--       per requeue: the same
--       per dead: id, message
-- Result  {1} | {0, epoch}  the fence is another's | {2}  the store forgot what it
--         had answered | {3, number}  late
-- Cost  O(named), and O(place in active) for what ends out of order
local f = redis.call('HMGET', KEYS[1], 't', 'e', 'n', 'a')
if f[1] ~= ARGV[1] then return {0, tonumber(f[2] or '0')} end
local n, seq, a = tonumber(f[3]), tonumber(ARGV[2]), f[4] or ''
if n < tonumber(ARGV[3]) then return {2} end
if seq < n then return {3, n} end
redis.call('HDEL', KEYS[1], '') -- not deny-oom: what follows runs in a full store too
redis.call('HSET', KEYS[1], 'n', ARGV[2])

local active, lease, prefix = KEYS[3], KEYS[4], ARGV[4]
local function str(x) return string.format('%.0f', x) end
local time
local function clock()
  time = time or redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local side -- does anything lie beside the tasks?
local function acquit(id)
  if a == id then
    a = ''
    redis.call('HSET', KEYS[1], 'a', '')
  end
  if side then redis.call('SREM', KEYS[9], id) end
end
local function holds(id) -- is it active? Its lease says so at once, unless that was deleted
  return redis.call('ZSCORE', lease, id) or redis.call('LPOS', active, id)
end
local function take(id) -- out of active: false if it is not there any more
  if redis.call('LREM', active, -1, id) == 0 then return false end
  redis.call('ZREM', lease, id)
  acquit(id)
  return true
end
local function keep(id, ...) -- unless its key holds something else: there is no task then
  redis.pcall('HSET', prefix .. id, ...)
end
local function forget(id)
  if side then redis.call('HDEL', KEYS[8], id) end
end
local function unlock(id, key) -- unless it is another's by now
  if key and redis.pcall('GET', key) == id then redis.call('DEL', key) end
end
local function count(day, total, by)
  if by > 0 then
    if redis.call('INCRBY', day, by) == by then redis.call('EXPIREAT', day, ARGV[7]) end
    redis.call('INCRBY', total, by)
  end
end

if ARGV[8] ~= '' then
  local counts, i, processed, failed = {}, 9, 0, 0
  for c in string.gmatch(ARGV[8], '%d+') do counts[#counts + 1] = tonumber(c) end
  -- What is taken out of active would be lost if the script failed before it is where it goes.
  if redis.acl_check_cmd then
    for command, key in pairs({ZREM = lease, ZADD = KEYS[5], LPUSH = KEYS[2], HSET = KEYS[8], HDEL = KEYS[8], SREM = KEYS[9]}) do
      if not redis.acl_check_cmd(command, key, '', '') then return redis.error_reply('NOPERM to ' .. command .. ' ' .. key) end
    end
  end
  redis.call('ZCARD', lease)
  side = redis.call('HLEN', KEYS[8]) + redis.call('SCARD', KEYS[9]) > 0
  if counts[3] > 0 then redis.call('ZCARD', KEYS[7]) end
  if counts[5] > 0 then
    redis.call('LLEN', KEYS[2])
    redis.call('ZCARD', KEYS[5])
  end
  if counts[6] > 0 then redis.call('ZCARD', KEYS[6]) end
  for k = 1, counts[1] + counts[2] do
    local id = ARGV[i]
    if take(id) then
      redis.call('DEL', prefix .. id)
      forget(id)
      processed = processed + 1
      unlock(id, k > counts[1] and KEYS[13 + k - counts[1]])
    end
    i = i + 1
  end
  local lock = 13 + counts[2]
  for _ = 1, counts[3] do
    local id, own = ARGV[i], ARGV[i + 3] == '1'
    if own then lock = lock + 1 end
    if take(id) then
      clock()
      redis.call('ZADD', KEYS[7], str(time[1] + ARGV[i + 2]), id)
      keep(id, 'msg', ARGV[i + 1], 'state', 'completed')
      forget(id)
      processed = processed + 1
      unlock(id, own and KEYS[lock])
    end
    i = i + 4
  end
  for k = 1, counts[4] + counts[5] do
    local id, stays = ARGV[i], k <= counts[4]
    local quiet, runs = string.match(ARGV[i + 1], '^(%-?)(.*)$')
    local had, crashes, why = string.match(redis.call('HGET', KEYS[8], id) or '', '^(%d+%S*) (%d+) %d+ (.*)$')
    local tries, before = tonumber(string.match(runs, '^%d+')), tonumber(string.match(had or '0', '^%d+'))
    local due = clock() + ARGV[i + 2]
    local admitted
    if stays then
      admitted = tries > before and holds(id)
      if admitted then acquit(id) end
    else
      admitted = take(id)
    end
    if admitted then
      if not why or why == '' then why = ARGV[i + 3] end
      if before > tries then runs = had end
      redis.call('HSET', KEYS[8], id, runs .. ' ' .. (crashes or '0') .. ' '
        .. (stays and str(due) or '0') .. ' ' .. why)
      keep(id, 'msg', ARGV[i + 4], 'tried', '1')
      if not stays and tonumber(ARGV[i + 2]) > 0 then
        redis.call('ZADD', KEYS[5], string.format('%.3f', due / 1000), id)
        keep(id, 'state', 'retry')
      elseif not stays then
        redis.call('LPUSH', KEYS[2], id)
        keep(id, 'state', 'pending', 'pending_since', time[1] .. string.format('%06d', time[2]) .. '000')
      end
      if quiet == '' then processed, failed = processed + 1, failed + 1 end
    end
    i = i + 5
  end
  for _ = 1, counts[6] do
    local id = ARGV[i]
    if take(id) then
      clock()
      redis.call('ZADD', KEYS[6], time[1], id)
      keep(id, 'msg', ARGV[i + 1], 'state', 'archived')
      forget(id)
      processed, failed = processed + 1, failed + 1
    end
    i = i + 2
  end
  if counts[6] > 0 then
    -- asynq keeps so many, and for so long, and looks with each one that it archives. A few more
    -- than come, so that what an older build has left goes too.
    local most = counts[6] + 100
    clock()
    local over = redis.call('ZRANGEBYSCORE', KEYS[6], '-inf', time[1] - 90 * 24 * 3600, 'LIMIT', 0, most)
    local extra = redis.call('ZCARD', KEYS[6]) - #over - 10000
    if extra > 0 then
      for _, id in ipairs(redis.call('ZRANGE', KEYS[6], #over, #over + math.min(extra, most) - 1)) do over[#over + 1] = id end
    end
    for _, id in ipairs(over) do
      redis.call('ZREM', KEYS[6], id)
      redis.call('DEL', prefix .. id)
    end
  end
  count(KEYS[10], KEYS[12], processed)
  count(KEYS[11], KEYS[13], failed)
end

if ARGV[5] ~= '' then
  local k, id = string.match(ARGV[5], '^(%d+) (.*)$')
  local had = string.match(redis.call('HGET', KEYS[8], id) or '0', '^%d+')
  if had == k and holds(id) then redis.call('HSET', KEYS[1], 'a', id) end
end
if ARGV[6] == '1' then
  clock()
  for _, id in ipairs(redis.call('LRANGE', active, 0, -1)) do
    redis.call('ZADD', lease, 'XX', str(time[1] + 30), id)
  end
end
return {1}
