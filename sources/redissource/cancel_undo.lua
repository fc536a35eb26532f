-- Takes back cancellations that are not carried out, or that were with a dead letter too, and tells all who hold
-- partitions of the name.
--
-- KEYS  1 {name}:cancel
-- ARGV  1 '' | 'dead' for those that became a dead letter too  2.. IDs
-- Result  for each its state before, '' if there was none
-- Cost  O(ARGV)
local states, undone = {}, false
for i = 2, #ARGV do
  local state = string.match(redis.call('HGET', KEYS[1], ARGV[i]) or '', '^%d+ %d+ (%a+) ') or ''
  states[i - 1] = state
  if state == 'waits' or state == 'runs' or state ~= '' and state == ARGV[1] then
    redis.call('HDEL', KEYS[1], ARGV[i])
    undone = true
  end
end
if undone then redis.pcall('PUBLISH', KEYS[1], '') end
return states
