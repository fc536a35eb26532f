-- Decides where tasks of an ingress go, before the first of them is pushed: whatever
-- becomes of its owner, and whatever the next one would think of a key, each goes there,
-- under this number. The plan lies where settle.lua takes it away with the task.
--
-- KEYS  1 fence  2 tries
-- ARGV  1 token  2 number of the last trip that was answered  3 greatest count of a plan that
--       was  4 prefix of task keys, then per task: id, partition
-- Result  {number, partition, ..}  | {}  the fence is another's  | {'forgot'}  the store
--         forgot what it had answered: its count would begin again below the marks
--         | {'above', epoch, ''}  a plan stands of a greater epoch than this owner's: epochs began
--         anew, and behind it his own numbers would be taken for repetitions
-- Cost  O(tasks)
redis.call('HDEL', KEYS[1], '') -- not deny-oom: to move tasks makes the store no fuller

local f = redis.call('HMGET', KEYS[1], 't', 'n', 'e', 'r')
if f[1] ~= ARGV[1] then return {} end
if tonumber(f[2]) < tonumber(ARGV[2]) or tonumber(f[4] or '0') < tonumber(ARGV[3]) then return {'forgot'} end
for i = 5, #ARGV, 2 do
  local e = string.match(redis.call('HGET', KEYS[2], ARGV[i]) or '', '^%d+ %d+ %d+ to (%d+)%-%d+ %d+$')
  if e and tonumber(e) > tonumber(f[3]) then return {'above', e, ''} end
end
local out = {}
for i = 5, #ARGV, 2 do
  local n, p = string.match(redis.call('HGET', KEYS[2], ARGV[i]) or '', '^%d+ %d+ %d+ to (%S+) (%d+)$')
  if not n then
    -- The epoch makes it greater than what an older owner has said, also where the
    -- store has lost the count since.
    n, p = f[3] .. '-' .. string.format('%.0f', redis.call('HINCRBY', KEYS[1], 'r', 1)), ARGV[i + 1]
    redis.call('HSET', KEYS[2], ARGV[i], '0 0 0 to ' .. n .. ' ' .. p)
    local task = ARGV[4] .. ARGV[i]
    if redis.call('EXISTS', task) == 1 then redis.call('HSET', task, 'tried', '1') end
  end
  out[#out + 1], out[#out + 2] = n, p
end
return out
