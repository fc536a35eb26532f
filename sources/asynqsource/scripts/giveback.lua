-- Moves what an owner had back to where it came from, in order: active has the newest
-- at its left end, pending the oldest at its right. Stands in front of the scripts that
-- need it.
local function giveback(pending, active, lease, prefix)
  local t = redis.call('TIME')
  local since = t[1] .. string.format('%06d', t[2]) .. '000'
  -- Who may not do this fails before the pushes: each attempt would push the tasks again. Not deny-oom, too: what
  -- follows runs in a full store.
  redis.call('LTRIM', active, 0, -1)
  redis.call('ZREM', lease, '')
  while true do
    local ids = redis.call('LRANGE', active, 0, 999)
    if #ids == 0 then break end
    redis.call('RPUSH', pending, unpack(ids))
    redis.call('LTRIM', active, #ids, -1)
    redis.call('ZREM', lease, unpack(ids))
    for _, id in ipairs(ids) do
      if redis.call('EXISTS', prefix .. id) == 1 then
        redis.pcall('HSET', prefix .. id, 'state', 'pending', 'pending_since', since) -- unless it holds something else
      end
    end
  end
end

