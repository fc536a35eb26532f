-- Stands in front of a script of asynq. KEYS ends with fence, tries, suspects and none, ARGV
-- with token, number ('': of no round trip), the id it settles ('': none) and '1' if that
-- comes again, so that what is known of its runs stays: they are
-- taken off, since some scripts of asynq look at the ends of these tables.
table.remove(KEYS)
local again, settles, number, token = table.remove(ARGV), table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
local suspects, tries, fence = table.remove(KEYS), table.remove(KEYS), table.remove(KEYS)
local f = redis.call('HMGET', fence, 't', 'n', 'a')
if f[1] ~= token or (number ~= '' and f[2] ~= number) then
  return redis.error_reply('FENCED the partition has another owner')
end
redis.call('HDEL', fence, '')
if settles ~= '' then
  -- asynq takes a task out of active, then out of the leases, then writes where it goes, and leaves it in no
  -- list where a step fails: each must be what it should, and a lease that was deleted is made up for.
  local at = {}
  for _, key in ipairs(KEYS) do
    local name = string.match(key, '^asynq:{[^}]*}:(%l+)$') -- not of a task, whatever its id
    if name then at[name] = key end
  end
  for _, name in ipairs({'lease', 'retry', 'archived', 'completed'}) do
    if at[name] then redis.call('ZCARD', at[name]) end
  end
  if at.pending then redis.call('LLEN', at.pending) end
  -- It trims the archive at once, which fails where that is of more than some thousands.
  if at.archived then
    local prefix, old = (string.gsub(at.archived, 'archived$', 't:')), redis.call('TIME')[1] - 90 * 24 * 3600
    while redis.call('ZCOUNT', at.archived, '-inf', old) > 1000 or redis.call('ZCARD', at.archived) > 11000 do
      local ids = redis.call('ZRANGE', at.archived, 0, 999)
      for _, id in ipairs(ids) do redis.call('DEL', prefix .. id) end
      redis.call('ZREM', at.archived, unpack(ids))
    end
  end
  if at.lease and at.active and not redis.call('ZSCORE', at.lease, settles) and redis.call('LPOS', at.active, settles) then
    redis.call('ZADD', at.lease, 0, settles)
  end
end
local function asynq()

