-- Refuses a choice of a phone if its owner's phones changed this category ten times, or all categories a hundred times, within the last 24 hours.
-- A person may withdraw at any time: a refusal of what was not refused before is never refused, and needs an acceptance before it can be repeated.
create or replace function relevo.check_choices_of_day(choice relevo.consents, channels text[]) returns void
  language plpgsql stable
as $$
declare
  of_category int;
  of_all int;
begin
  choice.words_digest := null;
  if not choice.wanted and exists (select from unnest(channels) as c(channel) where not relevo.is_recorded(choice, c.channel)) then
    return;
  end if;
  select count(distinct c.chosen_at) filter (where c.category = choice.category), count(distinct (c.category, c.chosen_at)) into of_category, of_all
    from relevo.consents c
   where c.owner = choice.owner and c.project = choice.project and c.face = 'phone' and c.chosen_at > now() - interval '24 hours';
  if of_category >= 10 then
    raise exception using errcode = '23R02', message = format('the phones of an owner may change category %s 10 times within 24 hours', choice.category);
  end if;
  if of_all >= 100 then
    raise exception using errcode = '23R02', message = 'the phones of an owner may change categories 100 times within 24 hours';
  end if;
end
$$;

revoke all on function relevo.check_choices_of_day from public;
