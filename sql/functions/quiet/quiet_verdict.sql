-- Returns what becomes of an event for a phone whose quiet hours last until then: `wait` until `due_at`, `silent`, which is sent now, or
-- `expired`. One that waits goes silently once it has waited as long as its type allows; one whose deadline lies in the quiet hours does what
-- its type says.
create or replace function relevo.quiet_verdict(rule text, max_wait_s int, at_deadline text, scheduled_at timestamptz, deadline_at timestamptz,
    until timestamptz, at timestamptz, out verdict text, out due_at timestamptz)
  language sql immutable
as $$
  select case when rule = 'silent' or w.due_at <= at then 'silent'
              when w.due_at >= deadline_at then coalesce(at_deadline, 'silent') else 'wait' end, w.due_at
    from (select least(until, scheduled_at + max_wait_s * interval '1 second') as due_at) w
   where until is not null and rule <> 'ignore'
$$;

revoke all on function relevo.quiet_verdict from public;
