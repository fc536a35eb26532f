-- Says where a log goes on that is not what its progress was written for: it was cut
-- at the front by its retention, it was cut at the end, or it is another log of the
-- same name. To be said after open, before anything else under the token but what
-- settle carries past the new base.
--
-- KEYS  1 fence  2 done  3 lifted  4 tries
-- ARGV  1 token  2 writes seen  3 new base  4 life: what the log is called by who keeps it
-- Result  {1, base, writes}  as they stand now; the base is another if this came late:
--          the owner has said something since, and a reset would wipe that out
--       | {0, epoch}  the fence is another's
--       | {2}  the store forgot writes it had answered
-- Cost  O(1); O(what is known of the log) if it goes back or is another
redis.call('HDEL', KEYS[1], '') -- not deny-oom: what follows runs in a full store too

local f = redis.call('HMGET', KEYS[1], 't', 'e', 'b', 'n', 'h', 'i')
if f[1] ~= ARGV[1] then return {0, tonumber(f[2] or '0')} end
local b, n, h, life = tonumber(f[3]), tonumber(f[4]), tonumber(f[5]), f[6] or ''
local seen, nb = tonumber(ARGV[2]), tonumber(ARGV[3])
if n < seen then return {2} end
if n > seen then return {1, b, n} end

local function str(x) return string.format('%.0f', x) end
if nb < b or life ~= '' and life ~= ARGV[4] then
  -- Positions are used a second time: nothing of what is known is true of them.
  redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
  redis.call('HSET', KEYS[1], 's', '0')
  h = nb
elseif nb > b then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. ARGV[3])
  for _, x in ipairs(redis.call('HKEYS', KEYS[4])) do
    if tonumber(x) < nb and redis.call('HEXISTS', KEYS[3], x) == 0 then redis.call('HDEL', KEYS[4], x) end
  end
  h = math.max(h, nb) -- as who opened takes it: what is lifted may be started
end
redis.call('HSET', KEYS[1], 'b', str(nb), 'n', str(n + 1), 'h', str(h), 'i', ARGV[4])
return {1, nb, n + 1}
