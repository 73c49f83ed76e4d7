-- Lists the caps, of one project or of all: [{"project": "default", "category": null, "per": "day", "most": 5, "over": "skip"}].
create or replace function relevo.list_caps(of_project text default null) returns jsonb
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select coalesce(jsonb_agg(jsonb_build_object('project', c.project, 'category', nullif(c.category, ''), 'per', c.per, 'most', c.most, 'over', coalesce(c.over, 'skip'))
                            order by c.project, c.category, c.per), '[]')
    from relevo.caps c where of_project is null or c.project = of_project
$$;

revoke all on function relevo.list_caps from public;
