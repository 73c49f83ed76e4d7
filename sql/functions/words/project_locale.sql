-- Returns the locale in which a project's phones are told what has no text in their own language; null if none was set.
create or replace function relevo.project_locale(of_project text) returns text
  language sql stable
return (select l.locale from relevo.project_locales l where l.project = of_project);

revoke all on function relevo.project_locale from public;
