-- was_sent_to_token as 0.3.0 calls it.
create or replace function relevo.told_already_1(of_day date, of_event bigint, by_other_than uuid, token text, since timestamptz) returns
    boolean
  language sql stable
as $$ select relevo.was_sent_to_token($1, $2, $3, $4, $5) $$;

revoke all on function relevo.told_already_1 from public;
