-- Returns whether an inbox has the events without project for its owner that reached no phone of the owner. That is the inbox of the project
-- `default`. Where equal owner names of projects are one person, it is that of each project in which the owner has a phone, and of `default` if
-- there is none.
create or replace function relevo.takes_unscoped(of_owner text, of_project text) returns boolean
  language sql stable
as $$
  select case when relevo.project_of_owners() is not null then of_project = relevo.project_of_owners()
              when exists (select from relevo.device_installations i where i.owner = of_owner and i.project = of_project and not i.for_news) then true
              else of_project = 'default' and not exists (select from relevo.device_installations i where i.owner = of_owner and not i.for_news) end
$$;

revoke all on function relevo.takes_unscoped from public;
