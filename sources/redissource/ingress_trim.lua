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

local refused = refusal()
if refused then return refused end
if redis.call('HGET', KEYS[2], 'k') ~= ARGV[3] then return {'FORGOT'} end
if changed(KEYS[3], ARGV[4], ARGV[5], ARGV[6]) then return {'CHANGED'} end

local taken = takeOff(KEYS[3], ARGV[4])
redis.call('DEL', KEYS[2])
return taken
