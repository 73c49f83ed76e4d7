-- Makes the inboxes that some resolved installations belong to, and locks them in one order. A registration does this before it locks phones: forgetting a phone locks its
-- inbox first, too, so neither waits for the other crosswise.
create or replace function relevo.lock_inboxes(resolved jsonb) returns void
  language plpgsql volatile
  set enable_seqscan = off -- lookups only
as $$
declare
  owners text[];
  projects text[];
  held bigint;
begin
  select array_agg(b.owner), array_agg(b.project) into owners, projects
    from (select distinct case when g.i ? 'owner' then g.i ->> 'owner' else k.owner end as owner,
                 case when g.i ? 'project' then coalesce(g.i ->> 'project', 'default') else coalesce(k.project, 'default') end as project
            from jsonb_array_elements(resolved) as g(i)
            left join lateral (select d.owner, d.project from relevo.device_installations d
                                where d.installation_id = (g.i ->> 'installation_id')::uuid offset 0) k on true) b
   where b.owner is not null;
  loop
    insert into relevo.inboxes (project, owner) select u.project, u.owner from unnest(projects, owners) as u(project, owner) order by 2, 1 on conflict do nothing;
    perform from relevo.inboxes b where (b.project, b.owner) in (select u.project, u.owner from unnest(projects, owners) as u(project, owner)) order by b.id for key share;
    get diagnostics held = row_count;
    exit when held >= coalesce(cardinality(owners), 0); -- fewer: another deleted an empty one meanwhile
  end loop;
end
$$;

revoke all on function relevo.lock_inboxes from public;
