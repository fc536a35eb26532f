-- jobs_fire fires ticks: it puts their tasks at the end of the log and records them, both or
-- neither. What is recorded of a job begins with the milliseconds up to which its ticks are
-- dealt with; a change that was decided on from another number is not made. So a tick is
-- fired once, whoever asks and however often.
--
-- KEYS  1 fence  2 :pending  3 :jobs
-- ARGV  1 token  2 partitions of the name, as the sender counts them  3 number of jobs, then
--       for each: name, the number it was decided on ('' = nothing is recorded), what to
--       record ('' = only look), number of its envelopes; then the envelopes
-- Result  {'OK', the store's clock in ms, what is recorded of each job now ('' = nothing)}
--         {'STALE'}  another token stands
--         {'RESIZED', partitions}  the name has another number of partitions now
-- Cost  5 us, 2 us for each job and 0.3 us for each envelope
local f = redis.call('HMGET', KEYS[1], 't', 'p', 'w')
if f[1] ~= ARGV[1] then return {'STALE'} end
if f[2] and f[2] ~= ARGV[2] then return {'RESIZED', f[2]} end

-- What is pushed and not recorded would be pushed again with each attempt.
if redis.acl_check_cmd and not redis.acl_check_cmd('HSET', KEYS[3], '', '') then return redis.error_reply('NOPERM to HSET ' .. KEYS[3]) end

local jobs, rung = tonumber(ARGV[3]), false
local now = redis.call('TIME')
local out = {'OK', string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000))}
local at = 4 + 4 * jobs
for i = 0, jobs - 1 do
  local name, from, value, count = unpack(ARGV, 4 + 4 * i, 7 + 4 * i)
  local stored = redis.call('HGET', KEYS[3], name) or ''
  count = tonumber(count)
  if value ~= '' and (string.match(stored, '^%d+') or '') == from then
    if count > 0 then -- first, for it may be refused: what is recorded nobody fires any more
      redis.call('RPUSH', KEYS[2], unpack(ARGV, at, at + count - 1))
      rung = true
    end
    redis.call('HSET', KEYS[3], name, value)
    stored = value
  end
  out[3 + i] = stored
  at = at + count
end
if rung then ring(KEYS[1], {f[3]}) end
return out
