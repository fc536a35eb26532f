-- Pushes tasks of an ingress into a queue, in order, each once: a number (epoch-count) up
-- to the mark was pushed before. It needs no fence: whoever says it says the same.
--
-- KEYS  1 pending  2 marks
-- ARGV  1 ingress  2 prefix of task keys  3 '1': push although the store is full  4 epoch of
--       the sender, then per task: number, id, message, another id, what the message has in
--       addition then, its lock ('' where that ends, as on a cluster)
-- Result  {tasks that were pushed} | {-1, epoch}  a greater epoch has pushed here: a later owner,
--         or epochs began anew, and new numbers would be taken for repetitions
-- Cost  O(tasks)
-- The first write is refused where the store is full, unless it is one that takes no memory.
if ARGV[3] == '1' then redis.call('HDEL', KEYS[2], '') end

local function parts(number)
  local e, n = string.match(number, '^(%d+)-(%d+)$')
  return tonumber(e), tonumber(n)
end
local mark, pushed = redis.call('HGET', KEYS[2], ARGV[1]) or '0-0', 0
local me, mn = parts(mark)
if me > tonumber(ARGV[4]) then return {-1, me} end
for i = 5, #ARGV, 6 do -- a plan from before epochs began anew: after it the new numbers would be old
  local e = parts(ARGV[i])
  if e > tonumber(ARGV[4]) then return {-1, e} end
end
redis.call('LLEN', KEYS[1]) -- were it no list, each task would be half written
local t = redis.call('TIME')
for i = 5, #ARGV, 6 do
  local e, n = parts(ARGV[i])
  if e > me or e == me and n > mn then
    local id, message = ARGV[i + 1], ARGV[i + 2]
    if redis.call('EXISTS', ARGV[2] .. id) == 1 then -- of another ingress, or kept as a result
      id, message = ARGV[i + 3], message .. ARGV[i + 4]
      local lock = ARGV[i + 5] -- it is released by who has the id that it holds
      if lock ~= '' and redis.pcall('GET', lock) == ARGV[i + 1] then redis.call('SET', lock, id, 'KEEPTTL') end
    end
    redis.call('HSET', ARGV[2] .. id, 'msg', message, 'state', 'pending', 'pending_since', t[1] .. string.format('%06d', t[2]) .. '000')
    -- asynq's tools end by it the lock of a task that they delete.
    if ARGV[i + 5] ~= '' then redis.call('HSET', ARGV[2] .. id, 'unique_key', ARGV[i + 5]) end
    redis.call('LPUSH', KEYS[1], id)
    me, mn, mark, pushed = e, n, ARGV[i], pushed + 1
  end
end
redis.call('HSET', KEYS[2], ARGV[1], mark)
return {pushed}
