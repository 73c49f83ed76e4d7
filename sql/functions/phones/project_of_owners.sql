-- Returns the project whose owners an event without project is for: `default`, or null, for all, where equal owner names of projects are one person.
create or replace function relevo.project_of_owners() returns text
  language sql stable
as $$ select 'default' where not exists (select from relevo.owner_sharing s where s.shared) $$;

revoke all on function relevo.project_of_owners from public;
