-- ingress_trim takes the planned lines off an ingress list. It is sent after every
-- target has answered its push.
--
-- KEYS  1 fence  2 plan  3 the list
-- ARGV  1 token
--       2 base of the plan  3 its lines
--       4 the side of the oldest, 'R' or 'L'  5 the oldest line  6 the last one
-- Result  {'OK', new base}
--         {'MOVED', base}  nothing done: they were taken off before
--         {'CHANGED'}  nothing done: the list holds other lines there
--         {'STALE'}  another token stands
--         {'FORGOT'}  the store lost what it had answered: begin a new era
-- Cost  10 us (7 of them for INFO), O(lines)
local f = redis.call('HMGET', KEYS[1], 't', 'b', 'r')
if f[1] ~= ARGV[1] then return {'STALE'} end
local here = ''
local info = redis.pcall('INFO', 'server')
if type(info) == 'string' then here = string.match(info, 'run_id:(%w+)') or '' end
local base, b0, k = tonumber(f[2]), tonumber(ARGV[2]), tonumber(ARGV[3])
if here ~= f[3] or base < b0 then return {'FORGOT'} end
if base > b0 then return {'MOVED', f[2]} end
if redis.call('HGET', KEYS[2], 'k') ~= ARGV[3] then return {'FORGOT'} end

local oldest, last = -1, -k
if ARGV[4] == 'L' then oldest, last = 0, k - 1 end
if redis.call('LINDEX', KEYS[3], oldest) ~= ARGV[5] or redis.call('LINDEX', KEYS[3], last) ~= ARGV[6] then
  return {'CHANGED'}
end
-- First, since it is not deny-oom: what follows runs in a full store too.
if ARGV[4] == 'L' then redis.call('LTRIM', KEYS[3], k, -1) else redis.call('LTRIM', KEYS[3], 0, -k - 1) end
local after = string.format('%.0f', b0 + k)
redis.call('HSET', KEYS[1], 'b', after)
redis.call('DEL', KEYS[2])
return {'OK', after}
