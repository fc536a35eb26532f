-- ingress_open installs the fence of an ingress list: from now on every older token
-- is refused. It begins a new era if the store may have lost something since: then
-- new lines could get positions that were given before, and the marks at the targets
-- would take them for repetitions.
--
-- KEYS  1 fence of the list: t token ('' = closed), e epoch, b base, g era, r run id
--       2 plan of the list
-- ARGV  1 token  2 epoch
--       3 the era to begin if one is due, greater than all this owner began before
--       4 '1' = one is due, and the plan is void: the lines are not those it was made for
-- Result  {'OK', base, era, plan: lines, sum, era, partitions, targets ('' = no plan)}
--         {'FENCED', epoch}  the same or a greater epoch stands under another token
--         {'PARTITION'}  the fence is that of a partition, of a name that the list is called after
-- Cost  O(1)
redis.call('HDEL', KEYS[1], '') -- not deny-oom: what follows runs in a full store too

local f = redis.call('HMGET', KEYS[1], 't', 'e', 'b', 'g', 'r', 'n')
if f[6] then return {'PARTITION'} end
local t, epoch, base, era, former = f[1] or '', f[2] or '0', f[3], f[4] or '0', f[5]
if t ~= ARGV[1] and tonumber(ARGV[2]) <= tonumber(epoch) then return {'FENCED', epoch} end

local here, info = run()
-- Where the run id may not be asked for nothing tells what was lost: each opening begins an
-- era. What was pushed and is still in the list has a plan, which keeps its own. (An emulator,
-- which has no runs, forgets nothing.)
local blind = type(info) == 'table' and not string.find(info.err, 'not supported', 1, true)

-- A request of this owner that comes late brings an era that is over: no change.
if t ~= ARGV[1] or tonumber(ARGV[3]) > tonumber(era) then
  if not base or ARGV[4] == '1' then redis.call('DEL', KEYS[2]) end
  if not base or ARGV[4] == '1' or former ~= here or blind then era = ARGV[3] end
  base = base or '0'
  redis.call('HSET', KEYS[1], 't', ARGV[1], 'e', ARGV[2], 'b', base, 'g', era, 'r', here)
end

local p = redis.call('HMGET', KEYS[2], 'k', 's', 'g', 'p', 't')
return {'OK', base, era, p[1] or '', p[2] or '', p[3] or '', p[4] or '', p[5] or ''}
