-- Begins the scripts that take a task or a dead letter from where it lies and put its task elsewhere.
-- KEYS[2] is where it may go, and KEYS[3] the fence of the partition.

-- resized reports whether a resize has the partition.
local function resized()
  local owner = redis.pcall('HGET', KEYS[3], 't')
  return type(owner) == 'string' and string.find(owner, ':resize-', 1, true)
end

-- unfit returns why it cannot go there, or nil: what is taken stays so if the script fails after it. types
-- has what each key is to be, by its number.
local function unfit(types)
  if redis.acl_check_cmd and not redis.acl_check_cmd('RPUSH', KEYS[2], '') then return redis.error_reply('NOPERM to RPUSH ' .. KEYS[2]) end
  for i, want in pairs(types) do
    local kind = redis.call('TYPE', KEYS[i]).ok
    if kind ~= want and kind ~= 'none' then return redis.error_reply('WRONGTYPE ' .. KEYS[i] .. ' is no ' .. want) end
  end
end
