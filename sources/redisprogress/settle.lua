-- Says all that the owner of a log has to say in one atomic step: what became of
-- tasks, the new base, what may be started, what runs alone. Said again, or late, it
-- changes nothing: each effect is tied to a position that is open, and happens
-- before the base moves.
--
-- KEYS  1 fence  2 done  3 lifted  4 tries  5 pending  6 delayed  7 dead (without a
--       list: 5 to 7 are fence again)  8.. locks to release
-- ARGV  1 token  2 '1' with a list, '0' without  3 writes seen  4 read below
--       5 new base  6 start below
--       7 elements asked for by the LRANGE before this call (0: none)
--       8 position that is about to run alone and its tries, or ''
--       9 how many retries, requeues, dead and locks follow; '' if 10 and 11 are
--         empty too
--       10 positions done, by name  11 positions to lift, ascending
--       then per retry: position, tries ('5', or '5-3' if three of them waited), delay
--       in ms, error
--       per requeue: position, envelope, delay in ms
--       per dead: position, letter (without a list it was kept elsewhere before)
--       per lock: position, value that it must hold; its key is KEYS[8..]
-- Result  {1, base before, base, writes, may be started below, end of the list (-1
--          without), ms until the next delayed task (-1: none, -2: not asked)}
--       | {0, epoch}  the fence is another's
--       | {2}  the store forgot writes it had answered, or the list was cut
-- Cost  O(1) if all was finished in order: 4 reads and 3 writes; O(named) otherwise;
--       lifts move payloads
local fence, done, pending, list, named = KEYS[1], KEYS[2], KEYS[5], ARGV[2] == '1', ARGV[9] ~= ''
local f = redis.call('HMGET', fence, 't', 'e', 'b', 'n', 'h', 'a')
if f[1] ~= ARGV[1] then return {0, tonumber(f[2] or '0')} end
local before, n, h, a = tonumber(f[3]), tonumber(f[4]), tonumber(f[5]), f[6]
local read, nb, gate, asked = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
if n < tonumber(ARGV[3]) then return {2} end
local last = math.huge
if list then
  last = before + redis.call('LLEN', pending)
  if last < read then return {2} end
end
local b = before

-- A full store refuses a script whose first write takes memory, and lets through what
-- follows one that does not: this, or the ZREMRANGEBYSCORE below.
if named or nb <= b then redis.call('HDEL', fence, '') end

local function open(s)
  if redis.call('HEXISTS', KEYS[3], s) == 1 then return true end
  local x = tonumber(s)
  return x >= b and x < last and not redis.call('ZSCORE', done, s)
end
-- forbidden returns what to answer where a right is missing, or nil. (Servers before 7.0 cannot be asked.)
local function forbidden(...)
  if redis.acl_check_cmd and not redis.acl_check_cmd(...) then return redis.error_reply('NOPERM to ' .. table.concat({...}, ' ', 1, 2)) end
end
local function str(x) return string.format('%.0f', x) end
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- 1 what became of tasks: retries first, so that one that ended since leaves nothing
local requeues = 0
if named then
  local lifted, tries, now = KEYS[3], KEYS[4], clock()
  local counts = {}
  for c in string.gmatch(ARGV[9], '%d+') do counts[#counts + 1] = tonumber(c) end
  local i, locks = 12, {}
  requeues = counts[2]
  local l = i + 4 * counts[1] + 3 * counts[2] + 2 * counts[3]
  for k = 0, counts[4] - 1 do locks[ARGV[l + 2 * k]] = {KEYS[8 + k], ARGV[l + 2 * k + 1]} end

  local function finish(s)
    redis.call('HDEL', lifted, s)
    redis.call('HDEL', tries, s)
    if tonumber(s) >= b then redis.call('ZADD', done, s, s) end
  end
  local function release(s)
    local lock = locks[s]
    if lock and redis.pcall('GET', lock[1]) == lock[2] then redis.call('DEL', lock[1]) end
  end

  for _ = 1, counts[1] do
    local s, k = ARGV[i], tonumber(string.match(ARGV[i + 1], '^%d+'))
    if open(s) then
      local had, crashes, why = string.match(redis.call('HGET', tries, s) or '', '^(%d+)%S* (%d+) %d+ (.*)$')
      if k > tonumber(had or '0') then
        if not why or why == '' then why = ARGV[i + 3] end
        redis.call('HSET', tries, s, ARGV[i + 1] .. ' ' .. (crashes or '0') .. ' ' .. str(now + ARGV[i + 2]) .. ' ' .. why)
        if a == s then a = '' end
      end
    end
    i = i + 4
  end
  for s in string.gmatch(ARGV[10], '%d+') do
    if open(s) then
      release(s)
      finish(s)
    end
  end
  -- Were this no hash, finish would fail, and the letter, or the task that goes to the end, be there again
  -- with each attempt.
  if counts[2] + counts[3] > 0 then redis.call('HLEN', tries) end
  local why = counts[2] + counts[3] > 0 and forbidden('ZADD', done, 0, '') -- as finish does
  if why then return why end
  for _ = 1, counts[2] do
    local s = ARGV[i]
    if open(s) then
      redis.call('ZADD', KEYS[6], str(now + ARGV[i + 2]), ARGV[i + 1])
      finish(s)
    end
    i = i + 3
  end
  for _ = 1, counts[3] do
    local s = ARGV[i]
    if open(s) then
      if list then redis.call('RPUSH', KEYS[7], ARGV[i + 1]) end
      release(s)
      finish(s)
    end
    i = i + 2
  end
end

-- 2 the base, with what is stuck
if nb > b then
  -- A list that is cut without its base, or what is done forgotten without either, would be taken for other tasks.
  local why = forbidden('HSET', fence, 'b', '') or list and forbidden('LTRIM', pending, 0, -1)
  if why then return why end
  for s in string.gmatch(ARGV[11], '%d+') do
    local x = tonumber(s)
    if x >= b and x < nb and not redis.call('ZSCORE', done, s) then
      redis.call('HSET', KEYS[3], s, list and redis.call('LINDEX', pending, x - b) or '')
    end
  end
  -- First, for it may be something else: the list would be cut again at each attempt, by tasks that nobody has run.
  redis.call('ZREMRANGEBYSCORE', done, '-inf', '(' .. ARGV[5])
  if list then redis.call('LTRIM', pending, nb - b, -1) end
  b = nb
end

-- 3 blame, and what may be started
if a ~= '' and not open(a) then a = '' end
if ARGV[8] ~= '' then
  local s, k = string.match(ARGV[8], '^(%d+) (%d+)$')
  if open(s) and tonumber(k) == tonumber(string.match(redis.call('HGET', KEYS[4], s) or '0', '^%d+')) then a = s end
end
h = math.max(h, math.min(gate, last))
n = n + 1
local short = list and last < read + asked
if short then
  -- The list ended before what was asked for: the owner will wait for a bell.
  redis.call('HSET', fence, 'b', str(b), 'n', str(n), 'h', str(h), 'a', a, 'w', '1')
else
  redis.call('HSET', fence, 'b', str(b), 'n', str(n), 'h', str(h), 'a', a)
end

local due = -2
if short or list and requeues > 0 then
  local head = redis.call('ZRANGE', KEYS[6], 0, 0, 'WITHSCORES')
  due = -1
  if head[2] then due = math.max(0, tonumber(head[2]) - clock()) end
end
return {1, before, b, n, h, list and last or -1, due}
