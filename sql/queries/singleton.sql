-- name: acquire_lease
-- Takes a singleton's lease if it is free, has expired, or ends so far ahead that the clock was set back since; raises its term.
insert into relevo.cycle_leases as l (cycle, source, holder, worker_id, term, lease_ms, leased_until)
values (%(cycle)s, %(source)s, %(holder)s, %(worker_id)s,
        coalesce((select t.term from relevo.cycle_terms t where t.cycle = %(cycle)s and t.source = %(source)s), 0) + 1,
        %(lease_ms)s::int, now() + %(lease_ms)s::int * interval '1 millisecond')
on conflict (cycle, source) do update
   set holder = excluded.holder, worker_id = excluded.worker_id, term = l.term + 1,
       lease_ms = excluded.lease_ms, leased_until = excluded.leased_until
 where l.leased_until <= now() or l.leased_until > clock_timestamp() + 2 * l.lease_ms * interval '1 millisecond'
returning l.term;

-- name: raise_term
-- Raises the fence to the new holder's term; waits for the former holder's open fenced transaction, if any.
insert into relevo.cycle_terms as t (cycle, source, term)
values (%(cycle)s, %(source)s, %(term)s)
on conflict (cycle, source) do update set term = excluded.term where t.term < excluded.term
returning t.term;

-- name: hold_term
-- First statement of every write transaction of a singleton: finds nothing once the term was raised by a successor.
select t.term from relevo.cycle_terms t
 where t.cycle = %(cycle)s and t.source = %(source)s and t.term = %(term)s
   for share;

-- name: read_lease
-- Returns who holds a singleton and until when.
select l.worker_id, l.leased_until, l.leased_until - now() as remaining
  from relevo.cycle_leases l
 where l.cycle = %(cycle)s and l.source = %(source)s and l.leased_until > now();

-- name: renew_leases
-- Extends the singleton leases of this process that nobody holds locked, and returns each that is still its own.
with free as materialized (
  select l.cycle, l.source from relevo.cycle_leases l where l.holder = any (%(holders)s::uuid[]) for no key update skip locked
), renewed as (
  update relevo.cycle_leases l
     set leased_until = now() + l.lease_ms * interval '1 millisecond'
    from free f
   where l.cycle = f.cycle and l.source = f.source and l.holder = any (%(holders)s::uuid[])
  returning l.holder
)
select l.holder, case when r.holder is null then 'locked' else 'renewed' end
  from relevo.cycle_leases l
  left join renewed r on r.holder = l.holder
 where l.holder = any (%(holders)s::uuid[]);

-- name: release_lease
-- Gives a lease back, holder and all: neither a heartbeat under way nor a clock set back revives it. The row stays, so that terms only rise.
update relevo.cycle_leases
   set leased_until = 'epoch', holder = gen_random_uuid()
 where cycle = %(cycle)s and source = %(source)s and holder = %(holder)s;
