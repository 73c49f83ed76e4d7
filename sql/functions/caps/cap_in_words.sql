-- Returns a cap in words: at most 5 a day of category offers.
create or replace function relevo.cap_in_words(c relevo.caps) returns text language sql immutable
  return format('at most %s %s', (c).most, case (c).per when 'hour' then 'an hour' else 'a ' || (c).per end)
         || case when (c).category = '' then '' else ' of category ' || (c).category end;

revoke all on function relevo.cap_in_words from public;
