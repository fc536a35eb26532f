-- Begins the scripts that know of an ingress list.

-- run returns the id of this run of the server, '' if that may not be asked for, and what INFO answered.
local function run()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%w+)') or '', info
end

-- What follows is for the scripts that move lines. KEYS[1] is the fence of the list, and ARGV are
-- 1 token  2 base the lines were read at  3 how many they are; the rest is the script's own.

-- refusal returns what to answer if the lines are not to be moved; else nil, and the era that stands.
-- An era that is given has to be that one.
local function refusal(era)
  local f = redis.call('HMGET', KEYS[1], 't', 'b', 'g', 'r')
  if f[1] ~= ARGV[1] then return {'STALE'} end
  local base, read = tonumber(f[2]), tonumber(ARGV[2])
  if run() ~= f[4] or era and f[3] ~= era or base < read then return {'FORGOT'} end
  if base > read then return {'MOVED', f[2]} end
  return nil, f[3]
end

-- changed reports whether other lines stand in the list than were read, of which these are the oldest
-- and the last. side is that of the oldest: 'R' or 'L'.
local function changed(list, side, oldest, last)
  local k = tonumber(ARGV[3])
  local first, final = -1, -k
  if side == 'L' then first, final = 0, k - 1 end
  return redis.call('LINDEX', list, first) ~= oldest or redis.call('LINDEX', list, final) ~= last
end

-- takeOff takes the lines off the list. It returns what to answer, with the new base. Its first write
-- is not deny-oom: what follows runs in a full store too.
local function takeOff(list, side)
  local k = tonumber(ARGV[3])
  if side == 'L' then redis.call('LTRIM', list, k, -1) else redis.call('LTRIM', list, 0, -k - 1) end
  local base = string.format('%.0f', ARGV[2] + k)
  redis.call('HSET', KEYS[1], 'b', base)
  return {'OK', base}
end
