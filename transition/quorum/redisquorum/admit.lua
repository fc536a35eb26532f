-- admit sets a number if it is less, or if there is none.
--
-- KEYS  1 the number
-- ARGV  1 what it is to be, at least
-- Result  1
-- Cost  2 us
local is = redis.call('GET', KEYS[1])
if not is or tonumber(is) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end
return 1
