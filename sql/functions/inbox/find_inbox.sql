-- Returns the requested inbox with its phones, up to a hundred: the present ones, newest first, then former ones, of which only deliveries with
-- this inbox are items. It rejects a wrong request with an error that names the fault.
create or replace function relevo.find_inbox(asked jsonb, fields text[] default '{}') returns relevo.inbox_subject
  language plpgsql stable
as $$
declare
  s relevo.inbox_subject;
  wrong text;
  of_projects text[];
begin
  if jsonb_typeof(asked) is distinct from 'object' then
    perform relevo.refuse('what is asked of an inbox must be a JSON object');
  end if;
  select string_agg(k, ', ' order by k) into wrong from jsonb_object_keys(asked) as k
   where k <> all (array['owner', 'installation_id', 'project'] || fields);
  if wrong is not null then
    perform relevo.refuse(format('an inbox has no field %s', wrong));
  end if;
  perform relevo.check_texts(asked, '{"owner": 200, "installation_id": 36, "project": 200}');
  s.owner := asked ->> 'owner';
  s.project := asked ->> 'project';
  if num_nonnulls(s.owner, asked ->> 'installation_id') <> 1 then
    perform relevo.refuse('owner or installation_id must be given: whose inbox it is');
  end if;
  if asked ->> 'installation_id' !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then
    perform relevo.refuse('installation_id must be a UUID');
  end if;
  s.earliest := (now() at time zone 'UTC')::date - greatest(90, (select max(t.inbox_days) from relevo.event_types t where t.inbox_days is not null)) - 1;
  if s.owner is null then
    return relevo.find_inbox_of_phone(s, (asked ->> 'installation_id')::uuid);
  end if;
  if s.project is null then
    of_projects := array(select distinct i.project from relevo.device_installations i where i.owner = s.owner and not i.for_news order by 1 limit 5);
    if of_projects = '{}' then -- phones that are deleted, or another's now, left an inbox
      of_projects := array(select b.project from relevo.inboxes b where b.owner = s.owner order by 1 limit 5);
    end if;
    if cardinality(of_projects) > 1 then
      perform relevo.refuse(format('project must be given: this owner has phones in %s', array_to_string(of_projects, ', ')));
    end if;
    s.project := coalesce(of_projects[1], 'default');
  end if;
  select b.id, b.seen_before, b.read_before into s.inbox_id, s.seen_before, s.read_before
    from relevo.inboxes b where b.owner = s.owner and b.project = s.project;
  select array_agg(i.installation_id), array_agg(coalesce(i.owner_since, '-infinity') - interval '1 microsecond') into s.phones, s.since
    from (select i.installation_id, i.owner_since from relevo.device_installations i
           where i.owner = s.owner and i.project = s.project and not i.for_news order by i.seq desc limit 100) i;
  select coalesce(s.phones, '{}') || coalesce(array_agg(f.installation_id), '{}'), coalesce(s.since, '{}') || coalesce(array_agg('infinity'::timestamptz), '{}')
    into s.phones, s.since
    from (select f.installation_id from relevo.former_phones f where f.inbox_id = s.inbox_id and f.installation_id <> all (coalesce(s.phones, '{}'))
           order by f.left_at desc limit 100 - coalesce(cardinality(s.phones), 0)) f;
  return s;
end
$$;

revoke all on function relevo.find_inbox from public;
