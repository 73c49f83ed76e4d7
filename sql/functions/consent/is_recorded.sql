-- Returns whether the record of a channel has a choice already: the same answer since the last other one, in the same words if there are any.
create or replace function relevo.is_recorded(choice relevo.consents, of_channel text) returns boolean
  language sql stable
as $$
  select exists (select from relevo.consents c
                  where c.owner = choice.owner and c.project = choice.project and c.category = choice.category and c.channel = of_channel
                    and c.wanted = choice.wanted and (choice.words_digest is null or c.words_digest = choice.words_digest)
                    and not exists (select from relevo.consents o
                                     where o.owner = c.owner and o.project = c.project and o.category = c.category and o.channel = c.channel
                                       and o.wanted <> c.wanted and o.id > c.id))
$$;

revoke all on function relevo.is_recorded from public;
