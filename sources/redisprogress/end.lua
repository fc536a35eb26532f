-- Notes where a log ends that lies elsewhere, for people: no script reads it. There must
-- be a fence, so that a store that forgot is not given half of one.
--
-- KEYS  1 fence
-- ARGV  1 position after the last element
if redis.call('HEXISTS', KEYS[1], 'b') == 1 then redis.call('HSET', KEYS[1], 'x', ARGV[1]) end
return 1 -- a script that answers nothing would look like an error, before which those of others are not seen
