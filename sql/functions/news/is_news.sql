-- Returns whether any subscription asks for a kind of news.
create or replace function relevo.is_news(kind text) returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$ select exists (select from relevo.news_subscriptions s where is_news.kind = any (s.kinds)) $$;

revoke all on function relevo.is_news from public;
