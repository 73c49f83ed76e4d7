-- matching_targets, everyone_targets and named_targets as 0.3.0 calls them.
create or replace function relevo.next_targets_3(e relevo.notification_events, most int, out is_last boolean, out last_seq bigint, out
    phones uuid[], out providers text[], out projects text[])
  language sql volatile
as $$
  select t.is_last, t.last_seq, w.phones, w.providers, w.projects from relevo.matching_targets($1, $2) t cross join lateral relevo.leave_out_others($1, t.phones, t.providers, t.projects, null, null) w where ($1).audience = 'matching'
  union all
  select t.is_last, t.last_seq, t.phones, t.providers, t.projects from relevo.everyone_targets($1, $2) t where ($1).audience = 'everyone'
  union all
  select t.is_last, t.last_seq, t.phones, t.providers, t.projects from relevo.attribute_targets($1, $2) t where ($1).audience = 'attributes'
  union all
  select t.is_last, t.last_seq, w.phones, w.providers, w.projects from relevo.named_targets($1, $2) t cross join lateral relevo.leave_out_others($1, t.phones, t.providers, t.projects, null, null) w where ($1).audience = 'installations'
$$;

revoke all on function relevo.next_targets_3 from public;
