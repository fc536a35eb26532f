-- Makes the name in a store that is known to be new, so that its first peers need not
-- wait out a grace.
--
-- KEYS    as in ledger.lua
-- ARGV    1 to 12 as in ledger.lua
-- result  {'config'}: as in sync.lua; {'stands'}: the name, or a part of it, was there, nothing
--         was done; {'made'}
-- cost    ~12 commands

local refusal = agree()
if refusal then return refusal end
-- Of a name that has lost :meta an owner may be at work: its next Sync opens a grace.
if redis.call('EXISTS', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]) > 0 then return {'stands'} end
begin(true)
set('grace', 0)
set('longest', 0) -- nobody has a lease yet
told = {}
note('made', '', '', '', '', '')
commit()
return {'made'}
