-- Returns of a token what may be shown: its first letters, of a Web Push subscription its host, and a mark by which two can be told apart.
create or replace function relevo.shown_token(provider text, part text, token text) returns text language sql immutable parallel safe
return case when provider = 'webpush' then part else coalesce(substring(token from '\[(.{1,4})'), left(token, 4)) end || '…' || substr(md5(token), 1, 4);

revoke all on function relevo.shown_token from public;
