-- Returns whether what is sent in a project is news: by its name now, and by the one it had while news shared the push service of webhooks.
create or replace function relevo.is_news_project(project text) returns boolean
  language sql immutable parallel safe
  return starts_with(project, 'relevo.news::') or starts_with(project, 'webhook::news.');

revoke all on function relevo.is_news_project from public;
