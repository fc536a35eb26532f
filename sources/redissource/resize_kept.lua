-- resize_kept says whether what was moved is where it should be, and writes something that
-- changes nothing: WAIT on its connection speaks of what that has written.
--
-- KEYS  1 a key that stands and does not expire  2 a mark, or 1 again  3... what should be gone
-- ARGV  1 the position up to which the mark should say that all was pushed, or ''
--       2 token of the mover, if 1 is a fence, or ''
-- Result  1; 0 = another has the fence; -1 = what was moved is not there: the store forgot
-- Cost  O(keys)
if ARGV[2] ~= '' and redis.call('HGET', KEYS[1], 't') ~= ARGV[2] then return 0 end
if redis.call('PEXPIRE', KEYS[1], 86400000) == 0 then return -1 end -- a full store takes it
redis.call('PERSIST', KEYS[1])
if #KEYS > 2 and redis.call('EXISTS', unpack(KEYS, 3)) > 0 then return -1 end
if ARGV[1] ~= '' and tonumber(string.match(redis.call('GET', KEYS[2]) or '', '^%d+ (%d+)') or -1) < tonumber(ARGV[1]) then return -1 end
return 1
