-- Returns whether a delivery was made for another owner than its phone has now. An event for everyone is the phone's, and what was made for no owner goes to
-- the first owner who has the phone after that. After the phone moved to another project its owner is the same person only where equal owner names of projects are one person.
create or replace function relevo.is_for_another(audience text, made_for bigint, made_at timestamptz, phone uuid, of_phone bigint, owner_since timestamptz) returns boolean
  language sql stable
as $$
  select audience <> 'everyone'
     and case when made_for is null then relevo.had_another_owner(phone, owner_since, made_at)
              else made_for is distinct from of_phone
                   and (relevo.project_of_owners() is not null
                        or ((select b.owner from relevo.inboxes b where b.id = made_for) = (select b.owner from relevo.inboxes b where b.id = of_phone)) is not true) end
$$;

revoke all on function relevo.is_for_another from public;
