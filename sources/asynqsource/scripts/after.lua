
end
local reply = asynq()
if settles ~= '' and not (type(reply) == 'table' and reply.err) then
  if f[3] == settles then redis.call('HSET', fence, 'a', '') end
  if again ~= '1' then redis.call('HDEL', tries, settles) end
  redis.call('SREM', suspects, settles)
end
return reply
