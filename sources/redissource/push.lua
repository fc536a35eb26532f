-- push puts a batch at the end of one log or, on a single server, of several, once:
-- what carries a position at or below the mark of its sender was pushed before and is
-- skipped, so that a batch may be sent again when its answer was lost, and may arrive
-- late. It rings for each log whose owner waits: see bell.lua.
--
-- KEYS  1 :mark:<sender>
--       then for each target: :pending, :fence and, with 'each', :delayed, :dead
--       then :unique:<id> of those messages that are unique, in their order
-- ARGV  1 era of the sender: a greater one begins its positions anew
--       2 first and 3 last position of the batch
--       4 all positions, separated by spaces; '' = each from first to last
--       5 seconds the mark lives; 0 = for ever
--       6 most tasks in a :pending; 0 = no limit
--       7 partitions of the name, as the sender counts them
--       8 '1' = push although the store is full
--       9 '' = after the targets come envelopes, at most 4,000
--         'each' = five for each message: what ('now'; 'after' or 'at', with
--         milliseconds; 'dead', with a dead letter as the body), milliseconds,
--         milliseconds it stays unique once it is due ('' = it is not), value of its lock,
--         body
--       10 number of targets, then for each the number of its messages
--       then the messages, target by target
-- Result  {'OK', a letter for each message: '+' pushed, '=' another holds its id,
--         'f' the log is full, 'r' the name has another number of partitions now,
--         'w' a key it goes to holds something else; '' = all pushed}; the same when it is repeated
--         {'STALE', era}  a greater era has pushed here
-- Cost  5 us, 3 us for each target and 0.3 us for each message
local era, first, last, total = ARGV[1], ARGV[2], ARGV[3], ARGV[7]
local targets = tonumber(ARGV[10])

local done = -1
local m = redis.call('GET', KEYS[1])
if m then
  local mera, mlast = string.match(m, '^(%d+) (%d+)')
  if tonumber(mera) > tonumber(era) then return {'STALE', mera} end
  if mera == era then
    done = tonumber(mlast)
    if done >= tonumber(last) then
      local mfirst, results = string.match(m, '^%d+ %d+ (%d+) (.*)$')
      if mfirst ~= first then results = '' end
      -- A write, which a full store takes: WAIT is for what the same connection wrote last, and who was
      -- the master until just now knows marks that the new one does not have.
      redis.call('EXPIRE', KEYS[1], ARGV[5] == '0' and 3600 or ARGV[5])
      if ARGV[5] == '0' then redis.call('PERSIST', KEYS[1]) end
      return {'OK', results}
    end
  end
end

-- The first write below is refused when the store is full, and the script with it;
-- this one is not, and what follows a write is let through.
if ARGV[8] == '1' then redis.call('HDEL', KEYS[3], '') end

-- Who may not set the mark is told before the pushes: he would push again at each attempt. This sets nothing.
-- Nothing is written yet, so that is told as a refusal of the whole, and not as a script that ended in its middle.
local may = redis.pcall('SET', KEYS[1], '', m and 'NX' or 'XX')
if type(may) == 'table' and may.err then return may end

-- again[i]: message i was pushed before. Only part of a batch was if an earlier one
-- ended in its middle.
local again = nil
if done >= tonumber(first) then
  again = {}
  if ARGV[4] == '' then
    for i = 1, done - tonumber(first) + 1 do again[i] = true end
  else
    local i = 0
    for x in string.gmatch(ARGV[4], '%d+') do
      i = i + 1
      again[i] = tonumber(x) <= done
    end
  end
end

local each, size, width = ARGV[9] == 'each', 1, 2
if each then size, width = 5, 4 end
local limit, now = tonumber(ARGV[6]), nil
local at, n, lock = 11 + targets, 0, 1 + width * targets
local out, plain = {}, true

-- is reports whether KEYS[i] is of that kind, or not there. What was pushed stays if the
-- script fails after it, and its sender would not know: so nothing below may fail.
local function is(i, want)
  local kind = redis.call('TYPE', KEYS[i]).ok
  return kind == want or kind == 'none'
end

-- clock returns the milliseconds of this moment, which is one for the whole batch.
local function clock()
  if not now then
    local t = redis.call('TIME')
    now = t[1] * 1000 + math.floor(t[2] / 1000)
  end
  return now
end

-- one pushes one message to the target whose keys begin after KEYS[k].
local function one(k, room)
  local what, ms, ttl, value, body = 'now', '', '', '', ARGV[at]
  if each then what, ms, ttl, value, body = unpack(ARGV, at, at + 4) end
  local unique = nil
  if ttl ~= '' then
    lock = lock + 1
    unique = KEYS[lock]
  end
  if again and again[n] then return '+', 0 end
  if what == 'now' and room < 1 then return 'f', 0 end
  if what == 'dead' and not is(k + 4, 'list') then return 'w', 0 end
  if (what == 'after' or what == 'at') and not is(k + 3, 'zset') then return 'w', 0 end
  local due = tonumber(ms)
  if what == 'after' then due = due + clock() end
  if unique then
    -- By the store's clock, as the task itself: the lock must not end before that, whatever time it is at the sender.
    if what ~= 'now' then ttl = str(ttl + math.max(0, due - clock())) end
    if not redis.call('SET', unique, value, 'NX', 'PX', ttl) then return '=', 0 end
  end
  if what == 'dead' then
    redis.call('RPUSH', KEYS[k + 4], body)
    return '+', 0
  end
  if what == 'now' then
    redis.call('RPUSH', KEYS[k + 1], body)
    return '+', 1
  end
  redis.call('ZADD', KEYS[k + 3], str(due), body)
  return '+', 0
end

for target = 1, targets do
  local k, count = 1 + width * (target - 1), tonumber(ARGV[10 + target])
  local f = redis.pcall('HMGET', KEYS[k + 2], 'w', 'p', 't', 'b', 'h')
  local results, refused, length, body = nil, nil, nil, nil
  if f.err then
    if not string.find(f.err, 'WRONGTYPE', 1, true) then return f end -- a right is missing, for each target: nothing is pushed
    refused = 'w'
  elseif f[2] and f[2] ~= total then
    refused = 'r'
  elseif limit == 0 and not each and not again then
    local r = redis.pcall('RPUSH', KEYS[k + 1], unpack(ARGV, at, at + count - 1))
    if type(r) == 'table' then
      if not string.find(r.err, 'WRONGTYPE', 1, true) then return r end
      refused = 'w'
    elseif count == 1 then
      length, body = r, ARGV[at]
    end
  else
    if not is(k + 1, 'list') then
      refused = 'w'
    else
      local room = math.huge
      if limit > 0 then room = limit - redis.call('LLEN', KEYS[k + 1]) end
      local letters = {}
      for i = 1, count do
        n = n + 1
        local letter, took = one(k, room)
        letters[i], room, at = letter, room - took, at + size
      end
      results = table.concat(letters)
    end
  end
  if not results then
    results = string.rep(refused or '+', count)
    if refused and each then
      for i = 0, count - 1 do
        if ARGV[at + 5 * i + 2] ~= '' then lock = lock + 1 end
      end
    end
    n, at = n + count, at + count * size
  end
  out[target] = results
  if string.find(results, '[^+]') then plain = false end
  if string.find(results, '+', 1, true) then ring(KEYS[k + 2], f, length, body) end
end

local results = ''
if not plain then results = table.concat(out) end
local value = era .. ' ' .. last .. ' ' .. first .. ' ' .. results
if ARGV[5] == '0' then redis.call('SET', KEYS[1], value) else redis.call('SET', KEYS[1], value, 'EX', ARGV[5]) end
return {'OK', results}
