-- Forgets what counted against the caps of somebody, in one project or in all: also against caps that were taken away since, whose project nobody
-- knows any more. They are locked in the order of fan-out.
create or replace function relevo.forget_cap_uses(of_subject text, of_project text) returns void
  language sql volatile
as $$
  with known as materialized (
    select u.cap, u.bucket
      from generate_series(1, (select max(u.cap) from relevo.cap_uses u)) as n(cap)
      left join relevo.caps c on c.id = n.cap
      join relevo.cap_uses u on u.cap = n.cap and u.subject = of_subject
     where of_project is null or c.id is null or c.project = of_project
     order by u.cap, u.bucket for update of u
  )
  delete from relevo.cap_uses u using known k where u.cap = k.cap and u.subject = of_subject and u.bucket = k.bucket
$$;

revoke all on function relevo.forget_cap_uses from public;
