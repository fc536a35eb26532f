-- Takes back cancellations that are not carried out, and tells all who hold partitions of the name.
--
-- KEYS  1 {name}:cancel
-- ARGV  IDs
-- Result  for each its state before, '' if there was none
-- Cost  O(ARGV)
local states, undone = {}, false
for i, id in ipairs(ARGV) do
  states[i] = string.match(redis.call('HGET', KEYS[1], id) or '', '^%d+ %d+ (%a+) ') or ''
  if states[i] == 'waits' or states[i] == 'runs' then
    redis.call('HDEL', KEYS[1], id)
    undone = true
  end
end
if undone then redis.pcall('PUBLISH', KEYS[1], '') end
return states
