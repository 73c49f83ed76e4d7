-- needs relevo 0.3.0
-- Finds phones by token and provider. While the indexes are made, about three seconds for each million phones, phones are read and not written.
-- What nobody may read meanwhile is in the last file: whoever has read phones and waits here to write them would keep it waiting for ever.

-- Returns a token with its provider, and with the environment of Apple's: two installations never have the same one. Expo's is the token alone.
-- It is inlined.
create or replace function relevo.token_name(provider text, part text, token text) returns text language sql immutable parallel safe
return case provider when 'expo' then token
                     when 'apns' then 'apns ' || part || chr(10) || token
                     else provider || chr(10) || token end;

revoke all on function relevo.token_name from public;

-- Returns the hash by which an installation is found by its token. It is inlined, so that the index is used.
create or replace function relevo.token_hash(provider text, part text, token text) returns bytea language sql immutable parallel safe
return sha256(replace(relevo.token_name(provider, part, token), '\', '\\')::bytea);

revoke all on function relevo.token_hash from public;

alter table relevo.device_installations validate constraint device_installations_token_check;
alter table relevo.device_installations validate constraint device_installations_platform_check;
alter table relevo.device_installations validate constraint device_installations_part_check;
alter table relevo.device_installations validate constraint device_installations_timezone_check;
create unique index device_installations_token_hash on relevo.device_installations (relevo.token_hash(provider, part, token)) where token is not null;
create index device_installations_token_text on relevo.device_installations using hash (token); -- for who knows no provider, and for 0.3.0
