-- Keeps the record of one category and channel at 20 rows: the first choice, the one that began what holds now, and the newest. The first row
-- counts those that were deleted; words that no row refers to any more are deleted with them.
create or replace function relevo.thin_choices(choice relevo.consents, of_channel text) returns void
  language plpgsql volatile
as $$
declare
  dropped bigint[];
begin
  with record as (
    select c.id, c.wanted, row_number() over (order by c.id) as place, count(*) over () as rows,
           lag(c.wanted) over (order by c.id) is distinct from c.wanted as begins
      from relevo.consents c
     where c.owner = choice.owner and c.project = choice.project and c.category = choice.category and c.channel = of_channel
  ), kept as (
    select min(r.id) as first, max(r.id) filter (where r.begins) as began from record r
  )
  select array(select r.id from record r, kept k where r.id not in (k.first, k.began) order by r.id limit greatest(0, (select max(n.rows) - 20 from record n)))
    into dropped;
  if cardinality(dropped) = 0 then
    return;
  end if;
  delete from relevo.consents c where c.id = any (dropped);
  update relevo.consents c set left_out = c.left_out + cardinality(dropped)
   where c.id = (select min(f.id) from relevo.consents f
                  where f.owner = choice.owner and f.project = choice.project and f.category = choice.category and f.channel = of_channel);
  delete from relevo.consent_words w
   where w.owner = choice.owner and w.project = choice.project
     and not exists (select from relevo.consents c where c.owner = w.owner and c.project = w.project and c.words_digest = w.digest);
end
$$;

revoke all on function relevo.thin_choices from public;
