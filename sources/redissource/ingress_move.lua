-- ingress_move moves the oldest lines of an ingress list to their partitions, in one
-- step: for a single server. The lines were read without a fence; that the base is
-- still the one they were read at says that nobody has moved them. It rings for each
-- partition whose owner waits: see bell.lua, and ingress.lua.
--
-- KEYS  1 fence  2 the list
--       then for each target: its :pending, :fence, :dead
-- ARGV  1 token
--       2 base the lines were read at  3 how many they are
--       4 the side of the oldest, 'R' or 'L'  5 the oldest line  6 the last one
--       7 era their ids were made with
--       8 partitions of the name, as the sender counts them
--       9 number of targets, then for each: number of envelopes, number of dead letters
--       then for each target its envelopes and its dead letters
-- Result  {'OK', new base}
--         {'MOVED', base}  nothing done: they were moved before
--         {'CHANGED'}  nothing done: the list holds other lines there
--         {'STALE'}  another token stands
--         {'FORGOT'}  the store lost what it had answered: begin a new era
--         {'RESIZED', partitions}  the name has another number of partitions now
-- Cost  10 us (7 of them for INFO), 3 us for each target and 0.3 us for each line
-- Not deny-oom: to move lines makes the store no fuller. And who may not do this fails before the pushes: each
-- attempt would push the lines again.
redis.call('LTRIM', KEYS[2], 0, -1)
if redis.acl_check_cmd and not redis.acl_check_cmd('HSET', KEYS[1], 'b', '') then return redis.error_reply('NOPERM to HSET ' .. KEYS[1]) end

local refused = refusal(ARGV[7])
if refused then return refused end
if changed(KEYS[2], ARGV[4], ARGV[5], ARGV[6]) then return {'CHANGED'} end

local targets, fences = tonumber(ARGV[9]), {}
for i = 1, targets do
  local g = redis.call('HMGET', KEYS[3 * i + 1], 'w', 'p', 't', 'b', 'h')
  if g[2] and g[2] ~= ARGV[8] then return {'RESIZED', g[2]} end
  fences[i] = g
  -- What was pushed stays if the script fails after it, and would be pushed again.
  for j = 0, 1 do
    local key = KEYS[3 * i + 2 * j]
    local kind = redis.call('TYPE', key).ok
    if ARGV[8 + 2 * i + j] ~= '0' and kind ~= 'list' and kind ~= 'none' then
      return redis.error_reply('WRONGTYPE ' .. key .. ' is no list')
    end
  end
end

local at = 10 + 2 * targets
for i = 1, targets do
  local pending, fence, dead = KEYS[3 * i], KEYS[3 * i + 1], KEYS[3 * i + 2]
  local live, lost = tonumber(ARGV[8 + 2 * i]), tonumber(ARGV[9 + 2 * i])
  if live > 0 then
    local length = redis.call('RPUSH', pending, unpack(ARGV, at, at + live - 1))
    ring(fence, fences[i], length, live == 1 and ARGV[at])
  end
  at = at + live
  if lost > 0 then redis.call('RPUSH', dead, unpack(ARGV, at, at + lost - 1)) end
  at = at + lost
end

return takeOff(KEYS[2], ARGV[4])
