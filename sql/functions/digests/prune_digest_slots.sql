-- Deletes slots of digests for which nothing is gathered, up to so many, and returns how many. They are locked first: whoever gathers for one waits, and makes it anew.
create or replace function relevo.prune_digest_slots(most int) returns int
  language plpgsql volatile
as $$
declare
  unused int[];
  gone int;
begin
  unused := array(select s.id from relevo.digest_slots s
                   where not exists (select from relevo.digest_items x where x.slot_id = s.id)
                   order by s.project, s.delivery, s.zone limit most for update skip locked);
  delete from relevo.digest_slots s where s.id = any (unused) and not exists (select from relevo.digest_items x where x.slot_id = s.id);
  get diagnostics gone = row_count;
  return gone;
end
$$;

revoke all on function relevo.prune_digest_slots from public;
