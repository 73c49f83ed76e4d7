-- Returns the locales whose texts a phone may be shown, the best first: es-CL, es-419, es. In Latin America's Spanish es-419 is in between, and in
-- English outside of the United States en-001. The package has the same function; a test compares them.
create or replace function relevo.locale_chain(locale text) returns text[]
  language plpgsql immutable
as $$
declare
  parts text[] := string_to_array(lower(translate(locale, '_', '-')), '-');
  chain text[] := '{}';
begin
  for n in reverse coalesce(cardinality(parts), 0) .. 1 loop
    if n = 1 and cardinality(parts) > 1 then
      chain := chain || case when parts[1] = 'es' and parts[2] <> 'es' then array['es-419']
                             when parts[1] = 'en' and parts[2] <> 'us' then array['en-001'] else '{}' end;
    end if;
    chain := chain || array_to_string(parts[:n], '-');
  end loop;
  return chain;
end
$$;

revoke all on function relevo.locale_chain from public;
