-- Returns a token with its provider, and with the environment of Apple's: two installations never have the same one. Expo's is the token alone.
-- It is inlined.
create or replace function relevo.token_name(provider text, part text, token text) returns text language sql immutable parallel safe
return case provider when 'expo' then token
                     when 'apns' then 'apns ' || part || chr(10) || token
                     else provider || chr(10) || token end;

revoke all on function relevo.token_name from public;
