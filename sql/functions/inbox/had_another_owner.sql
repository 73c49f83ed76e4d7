-- Returns whether a phone that had no owner at a moment was an owner's since, and is another's now, or nobody's. The first owner after that moment is the same person,
-- who logged in.
create or replace function relevo.had_another_owner(installation uuid, owner_since timestamptz, moment timestamptz) returns boolean
  language sql stable
as $$
  select coalesce(owner_since > moment, false) and exists (select from relevo.former_phones f where f.installation_id = installation and f.left_at > moment)
$$;

revoke all on function relevo.had_another_owner from public;
