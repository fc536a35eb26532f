-- Puts sets that asynq took out of groups back, and lists their groups again, which asynq's own
-- script leaves out: it would not look at them until another task came. Stands in front of the
-- scripts that need it.
local function regroup(sets, groups, prefix, most)
  local function size(key) return type(redis.pcall('ZCARD', key)) == 'number' end -- else it holds something else
  for _, set in ipairs(redis.call('ZRANGEBYSCORE', sets, '-inf', most)) do
    local group = string.match(set, '^(.*):[^:]*$') -- the set has an id behind that
    if size(set) and size(group) then
      local held = redis.call('ZRANGE', set, 0, -1, 'WITHSCORES')
      for i = 1, #held, 2 do redis.call('ZADD', group, held[i + 1], held[i]) end
      if #held > 0 then redis.call('SADD', groups, string.sub(group, #prefix + 1)) end
      redis.call('DEL', set)
      redis.call('ZREM', sets, set)
    end
  end
end

