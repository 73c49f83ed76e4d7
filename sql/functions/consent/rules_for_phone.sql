-- Returns an owner's rules for one of the owner's phones: refused and accepted categories, whether the owner is blocked, quiet hours and
-- attributes. Rules of the project come before those of all projects.
create or replace function relevo.rules_for_phone(of_owner text, of_project text, of_provider text,
    out refused text[], out accepted text[], out blocked boolean, out quiet int, out attributes jsonb)
  language sql stable
as $$
  select coalesce(array_agg(c.key order by c.key) filter (where c.value = 'false'), '{}'),
         coalesce(array_agg(c.key order by c.key) filter (where c.value = 'true'), '{}'), coalesce(bool_or(r.blocked_at is not null), false),
         (array_agg(r.quiet order by r.project desc) filter (where r.quiet is not null))[1],
         relevo.known_attributes((array_agg(r.attributes) filter (where r.project = ''))[1], (array_agg(r.attributes) filter (where r.project = of_project and of_project <> ''))[1])
    from relevo.owner_rules r
    left join lateral jsonb_each(r.choices -> case of_provider when 'webpush' then 'web' else 'push' end) as c(key, value) on true
   where r.owner = of_owner and r.project in (of_project, '')
$$;

revoke all on function relevo.rules_for_phone from public;
