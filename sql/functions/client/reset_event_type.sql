-- Lets an event type follow the settings again in everything; returns whether it differed.
create or replace function relevo.reset_event_type(of_type text) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  differed boolean;
begin
  delete from relevo.event_types t where t.event_type = of_type;
  differed := found;
  perform relevo.follow_types(case when of_type like '%.batch' then array[of_type, left(of_type, -6)] else array[of_type] end);
  return differed;
end
$$;

revoke all on function relevo.reset_event_type from public;
