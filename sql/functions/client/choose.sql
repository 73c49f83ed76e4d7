-- Records what an owner chose of a category, as reported by the app, and applies it to their phones at once: {"owner": "user-7", "project": …,
-- "category": "offers", "wanted": true, "channel": "push" or "web", else both, "words": what they were shown, "locale": …}. Returns whether
-- something was added to the record.
create or replace function relevo.choose(asked jsonb) returns boolean
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
  select relevo.write_choice(asked, 'app')
$$;

revoke all on function relevo.choose from public;
