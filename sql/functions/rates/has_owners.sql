-- Returns whether somebody owns a phone of a project, as far as its oldest and its newest ones tell; the project is named as deliveries name it.
create or replace function relevo.has_owners(of_project text) returns boolean
  language sql stable
as $$
select exists (
  select from (select distinct n.project
                 from unnest(array[of_project, split_part(of_project, '::', 2), substr(of_project, strpos(of_project, '::') + 2)]) as n(project)) n
    cross join lateral ((select i.owner from relevo.device_installations i
                          where i.project = n.project and relevo.may_receive(i) order by i.seq limit 100)
                        union all
                        (select i.owner from relevo.device_installations i
                          where i.project = n.project and relevo.may_receive(i) order by i.seq desc limit 100)) o
   where o.owner is not null)
$$;

revoke all on function relevo.has_owners from public;
