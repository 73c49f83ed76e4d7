-- Returns the quiet hours of a phone: its own, else its owner's, else its project's. Their time zone is the phone's, else the one set with these hours, else the
-- one set with the owner's hours, else with the project's, else UTC; a zone that this server does not know counts as not set. Also whose hours and zone these are.
-- No row if the phone has no quiet hours.
create or replace function relevo.quiet_of(own int, of_owner int, of_project text, timezone text)
  returns table (windows int4multirange, zone text, hours_of text, zone_of text)
  language sql stable
as $$
  select p.windows, coalesce(z.of_phone, z.of_hours, z.of_owner, z.of_project, 'UTC'),
         case when own is not null then 'phone' when of_owner is not null then 'owner' else 'project' end,
         case when z.of_phone is not null or z.of_hours is not null and own is not null then 'phone'
              when z.of_owner is not null then 'owner' when z.of_project is not null then 'project' else 'none' end
    from (select) one
    left join relevo.quiet_defaults d on d.project = of_project
    left join relevo.quiet_profiles g on g.id = d.quiet
    left join relevo.quiet_profiles o on o.id = of_owner
    join relevo.quiet_profiles p on p.id = coalesce(own, of_owner, d.quiet)
    cross join lateral (select relevo.known_zone(timezone) as of_phone, relevo.known_zone(nullif(p.zone, '')) as of_hours,
                               relevo.known_zone(nullif(o.zone, '')) as of_owner, relevo.known_zone(nullif(g.zone, '')) as of_project offset 0) z
$$;

revoke all on function relevo.quiet_of from public;
