-- name: add_session
-- Begins a session of a token that is neither revoked nor expired; deletes the sessions that have ended, and of this token all but the 99 used last.
with ended as (
  delete from relevo.http_sessions s
   where s.expires_at <= now() or s.last_used_at <= now() - s.idle_minutes * interval '1 minute'
      or s.secret_hash in (select o.secret_hash from relevo.http_sessions o where o.token_id = %(token_id)s order by o.last_used_at desc offset 99)
)
insert into relevo.http_sessions (secret_hash, token_id, expires_at, idle_minutes, address)
select %(secret_hash)s, t.id, least(now() + %(hours)s::int * interval '1 hour', coalesce(t.expires_at, 'infinity')), %(idle_minutes)s::int, %(address)s::text
  from relevo.api_tokens t
 where t.id = %(token_id)s and t.revoked_at is null and (t.expires_at is null or t.expires_at > now())
returning token_id;

-- name: read_session
-- Reads the owner of a session, if neither the session nor its token has ended. Returns also whether the last recorded use of token and session is
-- old enough to be written again.
select t.id, t.name, t.role, t.project, t.subject is not null as is_person, t.last_used_at is null or t.last_used_at < now() - interval '1 minute' as note_use,
       s.last_used_at < now() - interval '1 minute' as note_session
  from relevo.http_sessions s
  join relevo.api_tokens t on t.id = s.token_id
 where s.secret_hash = %(secret_hash)s and s.expires_at > now() and s.last_used_at > now() - s.idle_minutes * interval '1 minute'
   and t.revoked_at is null and (t.expires_at is null or t.expires_at > now());

-- name: note_session
-- Notes that a session was used, at most once a minute, whoever else notes it at the same time.
update relevo.http_sessions s set last_used_at = now()
 where s.secret_hash = (select u.secret_hash from relevo.http_sessions u
                         where u.secret_hash = %(secret_hash)s and u.last_used_at < now() - interval '1 minute'
                           for update skip locked);

-- name: is_session_proven
-- Returns whether somebody proved to hold the token of a session within so many minutes: by the login, or since.
select exists (select from relevo.http_sessions s
                where s.secret_hash = %(secret_hash)s and s.proved_at > now() - %(minutes)s::int * interval '1 minute');

-- name: prove_session
-- Notes that whoever uses a session has just proven to hold its token.
update relevo.http_sessions s set proved_at = now() where s.secret_hash = %(secret_hash)s;

-- name: list_sessions
-- Lists the sessions that have not ended, the one used last first; those of one token if asked. Their ids are of no use in a cookie.
select left(encode(s.secret_hash, 'hex'), 12) as id, s.token_id, t.name, t.role, s.created_at, s.last_used_at, s.proved_at, s.address,
       least(s.expires_at, s.last_used_at + s.idle_minutes * interval '1 minute') as ends_at, s.secret_hash = %(own)s::bytea as is_own, now() as now
  from relevo.http_sessions s
  join relevo.api_tokens t on t.id = s.token_id
 where (%(token_id)s::text is null or s.token_id = %(token_id)s)
   and s.expires_at > now() and s.last_used_at > now() - s.idle_minutes * interval '1 minute'
   and t.revoked_at is null and (t.expires_at is null or t.expires_at > now())
 order by s.last_used_at desc, s.secret_hash
 limit %(limit)s;

-- name: end_session
-- Ends a session.
delete from relevo.http_sessions s where s.secret_hash = %(secret_hash)s;

-- name: end_sessions
-- Ends the session of an id, those of a token, or all of them; where id and token are given, the session has to be of the token.
delete from relevo.http_sessions s
 where (%(id)s::text is null or left(encode(s.secret_hash, 'hex'), 12) = %(id)s)
   and (%(token_id)s::text is null or s.token_id = %(token_id)s);
