-- Makes and queues the deliveries of the next slice of an event that this transaction has locked; returns no row if its month is sealed.
-- Steps: find the stream that the brake watches, begin the event if this is its first slice, find the phones, leave out those without its attributes and whoever got the
-- event before it, hold to caps, insert deliveries, queue them in chunks of a hundred, move the cursor, wake dispatch, count for the brake up to a hundred
-- phones. Of a stream that was stopped as a whole within the last hour nothing is made unless the caller judged it (`looked`): then the row is
-- all null.
create or replace function relevo.fan_out_slice(of_event relevo.notification_events, most int, watched boolean, looked boolean, step_aside boolean,
                                       enough int, given_at timestamptz)
  returns table (is_last boolean, targets int, created int, projects text[], counted uuid[], in_hour float8[], busiest_day int[], held jsonb)
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now(given_at);
  e relevo.notification_events := of_event;
  due timestamptz := greatest(e.scheduled_at, e.created_at);
  origin_of text := 'app';
  stream bigint;
  release int;
  stopped boolean;
  was_held boolean;
  t record;
  gathered uuid[]; -- phones that are told by digests, and by which
  deliveries text[];
begin
  if watched then
    if e.licitacion_id is not null or e.project is not null then
      origin_of := relevo.event_origin(e);
    end if;
    select s.id, s.releases, s.held_above is not null and due - s.held_at < interval '1 hour',
           exists (select from relevo.held_events h where h.event_id = e.id)
      into stream, release, stopped, was_held
      from relevo.event_streams s where s.event_type = e.event_type and s.origin = origin_of;
    if stopped and not was_held and not looked and e.audience <> 'installations' then
      return next;
      return;
    end if;
  end if;
  if e.event_day is null then
    e.event_day := (at at time zone 'UTC')::date;
    e.fanout_started_at := at;
    e.fanout_upto := coalesce((select max(i.seq) from relevo.device_installations i), 0);
    if to_regclass('relevo.notification_deliveries' || to_char(e.event_day, '_YYYY_MM')) is null
       or to_regclass('relevo.push_requests' || to_char(e.event_day, '_YYYY_MM')) is null then
      perform relevo.ensure_partitions(e.event_day, 1);
    end if;
  end if;
  if relevo.hold_open(array[e.event_day]) = '{}' then
    return;
  end if;
  t := case e.audience
         when 'matching' then relevo.matching_targets(e, most)
         when 'everyone' then relevo.everyone_targets(e, most)
         when 'attributes' then relevo.attribute_targets(e, most)
         else relevo.named_targets(e, most)
       end;
  if e.audience = 'matching' then
    gathered := t.gathered;
    deliveries := t.deliveries;
  end if;
  if e.match_where is not null then
    select w.* into t.phones, t.providers, t.projects, t.hours, t.inboxes from relevo.leave_out_others(e, t.phones, t.providers, t.projects, t.hours, t.inboxes) w;
  end if;
  is_last := t.is_last;
  targets := coalesce(cardinality(t.phones), 0);
  if targets > 0 and (step_aside or exists (select from relevo.event_followers f where f.event_id = e.id)) then
    select w.* into targets, t.phones, t.providers, t.projects, t.hours, t.inboxes
      from relevo.leave_out_repeats(e, t.phones, t.providers, t.projects, t.hours, t.inboxes, step_aside) w;
  end if;
  created := coalesce(cardinality(t.phones), 0);
  if created > 0 then
    held := relevo.write_slice(
      e => e, at => at, phones => t.phones, providers => t.providers, projects => t.projects, hours => t.hours, inboxes => t.inboxes,
      gathered => gathered, deliveries => deliveries);
  end if;
  update relevo.notification_events n
     set state = case when is_last then 'fanned' else 'fanning' end, event_day = e.event_day, fanout_started_at = e.fanout_started_at,
         fanout_upto = e.fanout_upto, fanout_cursor = case when is_last then e.fanout_upto else t.last_seq end,
         targets_selected = e.targets_selected + targets, deliveries_created = e.deliveries_created + created,
         fanout_finished_at = case when is_last then at end, updated_at = at,
         turn_at = at + interval '10 seconds', -- whoever falls due meanwhile goes first
         fanout_failures = null, fanout_retry_at = null, fanout_error = null
   where n.id = e.id;
  if is_last and e.audience = 'installations' then
    perform relevo.note_missed_owners(e.id, e.event_day);
  end if;
  if created > 0 then
    perform relevo.wake('dispatch');
    if gathered is not null then
      t.phones := array(select u.phone from unnest(t.phones) as u(phone) except select g.phone from unnest(gathered) as g(phone));
    end if;
    if watched and (held ->> 'batched')::int is distinct from created and t.phones <> '{}' then -- what is gathered pushes nobody: the event that tells it is counted
      select b.* into counted, in_hour, busiest_day
        from relevo.count_slice(e, origin_of, stream, release, was_held, due, t.phones, enough) b;
      if counted is not null then
        projects := array(select distinct u.project from unnest(t.projects) as u(project));
      end if;
    end if;
  end if;
  return next;
end
$$;

revoke all on function relevo.fan_out_slice from public;
