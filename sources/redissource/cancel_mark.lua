-- Writes down what became of a cancellation. What is over stays so; one that was given anew since is left alone.
--
-- KEYS  1 {name}:cancel
-- ARGV  1 ID  2 since when it stands, as it was read  3 state  4 where
-- Result  1 written  | 0 it does not stand, or is over
-- Cost  O(1); as one it runs in a full store
redis.call('HDEL', KEYS[1], '')

local since, till, state, why = string.match(redis.call('HGET', KEYS[1], ARGV[1]) or '', '^(%d+) (%d+) (%a+) %S+ (.*)$')
if since ~= ARGV[2] or state == 'dead' or state == 'done' then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], since .. ' ' .. till .. ' ' .. ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. why)
if ARGV[3] ~= 'runs' then redis.pcall('PUBLISH', KEYS[1], '') end -- to be forgotten: others may be given the ID
return 1
