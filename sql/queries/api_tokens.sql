-- name: add_token
-- Adds a token, of which only the hash is kept.
insert into relevo.api_tokens (id, name, role, project, secret_hash, expires_at)
values (%(id)s, %(name)s, %(role)s, %(project)s, %(secret_hash)s, now() + %(days)s::int * interval '1 day')
returning created_at, expires_at;

-- name: read_token
-- Reads a token that is neither revoked nor expired, and whether its last use was long enough ago to be written again.
select t.id, t.name, t.role, t.project, t.secret_hash,
       t.last_used_at is null or t.last_used_at < now() - interval '1 minute' as note_use
  from relevo.api_tokens t
 where t.id = %(id)s and t.revoked_at is null and (t.expires_at is null or t.expires_at > now());

-- name: note_use
-- Notes that a token was used, at most once a minute, whoever else notes it at the same time.
update relevo.api_tokens t set last_used_at = now()
 where t.id = (select u.id from relevo.api_tokens u
                where u.id = %(id)s and (u.last_used_at is null or u.last_used_at < now() - interval '1 minute')
                  for update skip locked);

-- name: revoke_token
-- Revokes a token; finds nothing if there is none, or it was revoked before.
update relevo.api_tokens set revoked_at = now() where id = %(id)s and revoked_at is null returning name;

-- name: list_tokens
-- Lists the tokens, newest first, without anything by which one could be used.
select t.id, t.name, t.role, t.project, t.created_at, t.expires_at, t.revoked_at, t.last_used_at,
       case when t.revoked_at is not null then 'revoked' when t.expires_at <= now() then 'expired' else 'valid' end as state
  from relevo.api_tokens t
 order by t.created_at desc, t.id
 limit %(limit)s;

-- name: add_session
-- Begins a session of a token that is neither revoked nor expired, and forgets the sessions that have ended.
with forgotten as (
  delete from relevo.http_sessions s where s.expires_at <= now()
)
insert into relevo.http_sessions (secret_hash, token_id, expires_at)
select %(secret_hash)s, t.id, least(now() + %(hours)s * interval '1 hour', coalesce(t.expires_at, 'infinity'))
  from relevo.api_tokens t
 where t.id = %(token_id)s and t.revoked_at is null and (t.expires_at is null or t.expires_at > now())
returning token_id;

-- name: read_session
-- Reads whose session this is, if neither it nor its token has ended, and whether the token's last use was long enough ago to be written.
select t.id, t.name, t.role, t.project, t.last_used_at is null or t.last_used_at < now() - interval '1 minute' as note_use
  from relevo.http_sessions s
  join relevo.api_tokens t on t.id = s.token_id
 where s.secret_hash = %(secret_hash)s and s.expires_at > now()
   and t.revoked_at is null and (t.expires_at is null or t.expires_at > now());

-- name: end_session
-- Ends a session.
delete from relevo.http_sessions s where s.secret_hash = %(secret_hash)s;
