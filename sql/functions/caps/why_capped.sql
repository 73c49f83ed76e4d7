-- Returns in a sentence why an event is above a cap; also if the cap was taken away since.
create or replace function relevo.why_capped(of_cap int) returns text
  language sql stable
as $$
  select 'There is no room for it' || coalesce(': ' || (select relevo.cap_in_words(c) from relevo.caps c where c.id = of_cap), '') || '.'
$$;

revoke all on function relevo.why_capped from public;
