-- Returns the hash by which an installation is found by its token. It is inlined, so that the index is used.
create or replace function relevo.token_hash(provider text, part text, token text) returns bytea language sql immutable parallel safe
return sha256(replace(relevo.token_name(provider, part, token), '\', '\\')::bytea);

revoke all on function relevo.token_hash from public;
