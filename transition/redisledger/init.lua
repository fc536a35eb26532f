-- Makes the name in a store that is known to be new, so that its first peers need not
-- wait out a grace.
--
-- KEYS    as in ledger.lua
-- ARGV    1 to 12 as in ledger.lua
-- result  {'config'}: as in sync.lua; {'stands'}: the name was there, nothing was done;
--         {'made'}
-- cost    ~12 commands

local refusal = agree()
if refusal then return refusal end
if redis.call('EXISTS', KEYS[2]) == 1 then return {'stands'} end
begin(true)
set('grace', 0)
set('longest', 0) -- nobody has a lease yet
told = {}
note('made', '', '', '', '', '')
commit()
return {'made'}
