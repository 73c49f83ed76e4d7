-- Trigger: what was gathered for a phone that is in another time zone now, or whose quiet hours say another one, is told there; that of a phone that has another owner or
-- belongs to another project is told nobody.
create or replace function relevo.move_digests() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
declare
  code text := case when old.owner is not null and old.owner is distinct from new.owner then 'owner_changed'
                    when old.project <> new.project then 'project_changed' end;
  events bigint[];
begin
  if not exists (select from relevo.digest_items x where x.seq = new.seq) then
    return null;
  end if;
  if code is not null then
    events := array(select x.event_id from relevo.digest_items x where x.seq = new.seq order by x.event_id for update);
    perform relevo.drop_items(array_fill(new.seq, array[cardinality(events)]), events, code, relevo.now());
  elsif relevo.digest_zone(old) <> relevo.digest_zone(new) then
    perform relevo.place_items(array[new.installation_id]);
  end if;
  return null;
end
$$;

revoke all on function relevo.move_digests from public;
