-- Returns the events of a project that lie between two windows and are still worth telling, the best first: by their score, then the latest.
create or replace function relevo.digest_window(of_project text, after_number bigint, upto_number bigint, at timestamptz)
  returns table (place int, number bigint, e relevo.notification_events, rule text)
  language sql stable
as $$
  select row_number() over (order by case when jsonb_typeof(n.push -> 'relevanceScore') = 'number' then (n.push ->> 'relevanceScore')::numeric
                                          when jsonb_typeof(n.data -> 'score') = 'number' then (n.data ->> 'score')::numeric else 0 end desc,
                                     n.fanout_finished_at desc, n.id desc)::int,
         d.number, n, relevo.category_rule(n.category)
    from relevo.digest_events d
    join relevo.notification_events n on n.id = d.event_id
   where d.number > after_number and d.number <= upto_number and n.ended_at is null and (n.deadline_at > at) is not false
     and (n.project is null or n.project = of_project)
$$;

revoke all on function relevo.digest_window from public;
