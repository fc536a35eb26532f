-- raise sets a number if it is less, and says what it was.
--
-- KEYS  1 the number
-- ARGV  1 what it is to be, at least
-- Result  what it was; -1: there is none, and nothing was set
-- Cost  2 us
local is = redis.call('GET', KEYS[1])
if not is then return -1 end
if tonumber(is) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end
return tonumber(is)
