-- grant_app as 0.3.0 calls it.
create or replace function relevo.grant_door(role_name text) returns void
  language sql volatile
as $$ select relevo.grant_app($1) $$;

revoke all on function relevo.grant_door from public;
