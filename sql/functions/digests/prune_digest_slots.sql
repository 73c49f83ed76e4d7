-- Deletes slots of digests that nobody follows, up to so many, and returns how many. They are locked first: whoever begins to follow one waits, and makes it anew.
create or replace function relevo.prune_digest_slots(most int) returns int
  language plpgsql volatile
as $$
declare
  unused text[];
  gone int;
begin
  unused := array(select concat_ws(chr(31), s.project, s.delivery, s.zone) from relevo.digest_slots s
                   where s.upto_number is null and not exists (select from relevo.digest_followers f
                     where f.project = s.project and f.delivery = s.delivery and f.zone = s.zone)
                     and not exists (select from relevo.digest_changes c where c.project = s.project and c.delivery = s.delivery and c.zone = s.zone)
                     and not exists (select from relevo.digest_extras x where x.project = s.project and x.delivery = s.delivery and x.zone = s.zone)
                   order by s.project, s.delivery, s.zone limit most for update skip locked);
  delete from relevo.digest_slots s
   where concat_ws(chr(31), s.project, s.delivery, s.zone) = any (unused)
     and not exists (select from relevo.digest_followers f where f.project = s.project and f.delivery = s.delivery and f.zone = s.zone)
     and not exists (select from relevo.digest_changes c where c.project = s.project and c.delivery = s.delivery and c.zone = s.zone)
     and not exists (select from relevo.digest_extras x where x.project = s.project and x.delivery = s.delivery and x.zone = s.zone);
  get diagnostics gone = row_count;
  return gone;
end
$$;

revoke all on function relevo.prune_digest_slots from public;
