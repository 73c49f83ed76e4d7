-- name: is_sharing_assumed
-- Returns whether equal owner names of several projects are one person although nobody said so, and there is another project than this one.
select exists (select from relevo.owner_sharing s where s.shared and s.said_at is null)
   and (exists (select from relevo.device_installations i where i.project <> %(project)s and not i.for_news)
        or exists (select from relevo.api_tokens t where t.project <> %(project)s and t.revoked_at is null));

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
-- Revokes a token and ends its sessions; finds nothing if there is none, or it was revoked before.
with ended as (
  delete from relevo.http_sessions s where s.token_id = %(id)s
)
update relevo.api_tokens set revoked_at = now() where id = %(id)s and revoked_at is null returning name;

-- name: list_tokens
-- Lists the tokens, newest first, without anything by which one could be used.
select t.id, t.name, t.role, t.project, t.created_at, t.expires_at, t.revoked_at, t.last_used_at,
       case when t.revoked_at is not null then 'revoked' when t.expires_at <= now() then 'expired' else 'valid' end as state
  from relevo.api_tokens t
 order by t.created_at desc, t.id
 limit %(limit)s;
