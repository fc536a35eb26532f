-- Stands in front of a script of asynq. KEYS ends with fence, tries and suspects, ARGV
-- with token, number ('': of no round trip), the id it settles ('': none) and '1' if that
-- comes again, so that what is known of its runs stays: they are
-- taken off, since some scripts of asynq look at the ends of these tables.
local again, settles, number, token = table.remove(ARGV), table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
local suspects, tries, fence = table.remove(KEYS), table.remove(KEYS), table.remove(KEYS)
local f = redis.call('HMGET', fence, 't', 'n', 'a')
if f[1] ~= token or (number ~= '' and f[2] ~= number) then
  return redis.error_reply('FENCED the partition has another owner')
end
redis.call('HDEL', fence, '')
local function asynq()

