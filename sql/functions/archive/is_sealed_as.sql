-- Returns whether a relation has the seal of an export, unbroken.
create or replace function relevo.is_sealed_as(cold regclass, export uuid) returns boolean language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select count(*) = 2 from pg_trigger t
   where t.tgrelid = cold and t.tgname in ('sealed', 'sealed_whole') and t.tgenabled in ('O', 'A')
     and t.tgfoid = 'relevo.refuse_sealed()'::regprocedure and t.tgargs = convert_to(export::text, 'UTF8') || E'\\x00'::bytea
$$;

revoke all on function relevo.is_sealed_as from public;
