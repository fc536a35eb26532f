-- ingress_plan stores where the oldest lines of an ingress list go, before the first
-- of them is pushed there: whoever goes on with them, perhaps with other code, pushes
-- each to the same partition, whose mark knows it. The plan that stands wins.
--
-- KEYS  1 fence  2 plan  3 the list
-- ARGV  1 token
--       2 base the lines were read at  3 how many they are, 0 = only ask  4 their sum
--       5 targets: a partition for each, separated by spaces
--       6 partitions of the name, as the sender counts them
--       7 the side of the oldest, 'R' or 'L'  8 the oldest line  9 the last one
-- Result  {'PLAN', lines, sum, era, partitions, targets}  the plan that stands now
--         {'NONE'}  none stands and none was given
--         {'MOVED', base}  nothing done: lines were moved since
--         {'CHANGED'}  nothing done: the list holds other lines there
--         {'STALE'}  another token stands
--         {'FORGOT'}  the store lost what it had answered: begin a new era
-- Cost  12 us (7 of them for INFO)
redis.call('HDEL', KEYS[1], '') -- not deny-oom: to move lines makes the store no fuller

local refused, era = refusal()
if refused then return refused end

local p = redis.call('HMGET', KEYS[2], 'k', 's', 'g', 'p', 't')
if p[1] then return {'PLAN', p[1], p[2], p[3], p[4], p[5]} end
if tonumber(ARGV[3]) == 0 then return {'NONE'} end
if changed(KEYS[3], ARGV[7], ARGV[8], ARGV[9]) then return {'CHANGED'} end
redis.call('HSET', KEYS[2], 'k', ARGV[3], 's', ARGV[4], 'g', era, 'p', ARGV[6], 't', ARGV[5])
return {'PLAN', ARGV[3], ARGV[4], era, ARGV[6], ARGV[5]}
