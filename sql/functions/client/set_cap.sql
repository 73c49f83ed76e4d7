-- Sets how many events of a category an owner is sent at most by the phones of a project: {"project": "default", "category": "offers", "per": "day", "most": 5, "over": "digest"};
-- without category of all together. An event above it is skipped unless `over` is digest; left out, `over` stays as it is. `most` must be given: null removes the cap.
-- Returns whether something changed.
create or replace function relevo.set_cap(asked jsonb) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  of_project text := coalesce(asked ->> 'project', 'default');
begin
  perform relevo.check_owner_question(asked, array['category', 'per', 'most', 'over'], false);
  if asked ? 'owner' then
    perform relevo.refuse('a cap holds for every owner of a project: leave out owner');
  end if;
  if coalesce(asked ->> 'per', '') <> all (array['hour', 'day', 'week']) then
    perform relevo.refuse('per must be hour, day or week');
  end if;
  if not asked ? 'most' then
    perform relevo.refuse('most must be given: a number from 1 to 1000, or null to remove the cap');
  end if;
  perform relevo.check_number(asked, 'most', 1, 1000, true);
  if coalesce(asked ->> 'over', 'skip') <> all (array['skip', 'digest']) then
    perform relevo.refuse('over must be skip or digest');
  end if;
  if asked ->> 'most' is null then
    delete from relevo.caps c where c.project = of_project and c.category = coalesce(asked ->> 'category', '') and c.per = asked ->> 'per';
    return found;
  end if;
  insert into relevo.caps as c (project, category, per, most, over)
  values (of_project, coalesce(asked ->> 'category', ''), asked ->> 'per', (asked ->> 'most')::numeric::int, asked ->> 'over')
  on conflict (project, category, per) do update
     set most = excluded.most, over = case when asked ? 'over' then excluded.over else c.over end, updated_at = now()
   where c.most <> excluded.most or asked ? 'over' and coalesce(c.over, 'skip') <> coalesce(excluded.over, 'skip');
  if not found then
    return false;
  end if;
  update relevo.cap_uses u set is_spent = false -- there may be room again
    from (select u.cap, u.subject, u.bucket
            from relevo.caps c join relevo.cap_uses u on u.cap = c.id
           where c.project = of_project and c.category = coalesce(asked ->> 'category', '') and c.per = asked ->> 'per' and u.is_spent
           order by u.subject, u.bucket for update of u) o -- in the order of fan-out
   where u.cap = o.cap and u.subject = o.subject and u.bucket = o.bucket;
  return true;
end
$$;

revoke all on function relevo.set_cap from public;
