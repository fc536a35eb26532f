-- Writes down tasks that are to be cancelled, and tells all who hold partitions of the name. One that stands already
-- stays as far as it is: who has met it says what becomes of it.
--
-- KEYS  1 {name}:cancel, ID -> since, until, state, where, why
-- ARGV  1 milliseconds that it stands  2 most that may stand  3 why  4.. IDs
-- Result  {1, now, until}, by the store's clock in milliseconds  | {0, how many stand}  too many would: nothing is written
-- Cost  O(what stands); as one it runs in a full store
redis.call('HDEL', KEYS[1], '')

local function str(x) return string.format('%.0f', x) end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local given, stands, over = {}, 0, {} -- given: ID -> since, and how far it is
local anew = {str(now), 'waits -'}
for i = 4, #ARGV do
  if not given[ARGV[i]] then
    given[ARGV[i]] = anew
    stands = stands + 1
  end
end
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local since, till, state, where = string.match(all[i + 1], '^(%d+) (%d+) (%a+) (%S+) ')
  if not till or tonumber(till) <= now then
    redis.call('HDEL', KEYS[1], all[i])
  elseif state == 'dead' or state == 'done' then
    over[#over + 1] = all[i] -- for who waits for it to read, while there is room
  elseif given[all[i]] then
    given[all[i]] = {since, state .. ' ' .. where}
  else
    stands = stands + 1
  end
end
if stands > tonumber(ARGV[2]) then return {0, redis.call('HLEN', KEYS[1]) - #over} end
if stands + #over > tonumber(ARGV[2]) then
  for _, id in ipairs(over) do redis.call('HDEL', KEYS[1], id) end
end
for id, g in pairs(given) do
  redis.call('HSET', KEYS[1], id, g[1] .. ' ' .. str(now + ARGV[1]) .. ' ' .. g[2] .. ' ' .. ARGV[3])
end
redis.call('PEXPIRE', KEYS[1], str(math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[1]))))
redis.pcall('PUBLISH', KEYS[1], '')
return {1, str(now), str(now + ARGV[1])}
