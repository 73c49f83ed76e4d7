-- Returns whether two inboxes are of equally named owners: of an owner whose phone was moved to another project.
create or replace function relevo.is_same_owner(made_for bigint, of_phone bigint) returns boolean
  language sql stable
as $$
  select coalesce((select b.owner from relevo.inboxes b where b.id = made_for) = (select b.owner from relevo.inboxes b where b.id = of_phone), false)
$$;

revoke all on function relevo.is_same_owner from public;
