-- name: write_person
-- Writes what a person may do, as the groups of the person's last login say; ends the person's sessions if that changed. Writes and returns nothing
-- for a person whose token was revoked here.
with before as (
  select t.id, t.role, t.project from relevo.api_tokens t where t.issuer = %(issuer)s and t.subject = %(subject)s
), written as (
  insert into relevo.api_tokens as t (id, name, role, project, secret_hash, issuer, subject)
  values (%(id)s, %(name)s, %(role)s, %(project)s, %(secret_hash)s, %(issuer)s, %(subject)s)
  on conflict (issuer, subject) where subject is not null
  do update set name = excluded.name, role = excluded.role, project = excluded.project where t.revoked_at is null
  returning t.id, t.name, t.role, t.project
), ended as (
  delete from relevo.http_sessions s using before b, written w
   where s.token_id = b.id and (b.role <> w.role or b.project is distinct from w.project)
)
select w.id, w.name, w.role, w.project, true from written w;

-- name: end_person
-- Ends the sessions of a person.
delete from relevo.http_sessions s using relevo.api_tokens t
 where s.token_id = t.id and t.issuer = %(issuer)s and t.subject = %(subject)s;

-- name: restore_person
-- Takes back that a person's token was revoked; finds nothing if there is no such person, or it was not revoked.
update relevo.api_tokens t set revoked_at = null where t.id = %(id)s and t.revoked_at is not null and t.subject is not null returning t.name;
