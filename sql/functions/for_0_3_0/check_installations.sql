-- checked_installations as register_many of 0.3.0 calls it.
create or replace function relevo.check_installations(installations jsonb) returns void
  language sql stable
as $$ select relevo.checked_installations($1) $$;

revoke all on function relevo.check_installations from public;
