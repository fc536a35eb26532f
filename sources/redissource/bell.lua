-- Begins the scripts that put tasks at the end of logs.
--
-- ring wakes the owner of a log that waits for a bell. f is what HMGET answered of its fence:
-- w and, with body, p, t, b and h. If a single task was put there, body is its envelope, and length that of
-- the list with it; then the bell says all of it, if it is no longer than 4 KiB: the token,
-- the position and the envelope, separated by spaces; and the fence says that the position
-- may be started. Not if something before it may not be, which was put there without a bell:
-- the owner has not read that, and after a crash all of it would be suspect.
local function str(x) return string.format('%.0f', x) end

local function ring(fence, f, length, body)
  if not f[1] then return end
  local says = ''
  if body and #body <= 4096 then
    local b, h = tonumber(f[4]), tonumber(f[5])
    if f[3] and b and h and b + length - 1 <= h then
      says = f[3] .. ' ' .. str(b + length - 1) .. ' ' .. body
      if b + length > h then redis.call('HSET', fence, 'h', str(b + length)) end
    end
  end
  redis.call('HDEL', fence, 'w')
  redis.pcall('PUBLISH', string.gsub(fence, 'fence$', 'bell'), says)
end

