-- name: lock_device
-- Has those who register one installation take turns.
select relevo.take_turn('installation:' || %(installation_id)s::uuid::text);

-- name: lock_token
-- Has those who hand in one token take turns, and returns the hash by which its installation is found.
select relevo.token_hash(r.i ->> 'provider', r.i ->> 'part', r.i ->> 'token'),
       relevo.take_turn('token:' || (r.i ->> 'token'))
  from (select jsonb_strip_nulls(jsonb_build_object('installation_id', %(installation_id)s::uuid, 'provider', %(provider)s::text,
                                                    'environment', %(environment)s::text, 'token', %(token)s::text)) as i) g
  cross join lateral (select relevo.provider_of(g.i) as provider offset 0) p
  cross join lateral jsonb_array_elements(relevo.resolved_installations(jsonb_build_array( -- with its provider: nothing is refused before the caller is judged
    g.i || jsonb_build_object('provider', p.provider, 'token', relevo.normal_token(p.provider, g.i ->> 'token'))))) as r(i);

-- name: lock_owner
-- Has those who register a phone of an owner take turns with those who choose for that owner, before phones are locked.
select relevo.lock_shared('owner:' || %(owner)s::text);

-- name: lock_phones
-- Locks an installation and whoever has its token, in the order of all who write installations, so that both stay as they are read; returns
-- their projects and providers.
select i.installation_id, i.project, i.provider from relevo.device_installations i
 where i.installation_id = %(installation_id)s
    or i.token is not null and relevo.token_hash(i.provider, i.part, i.token) = %(token_hash)s
 order by i.installation_id
   for update;

-- name: read_device
-- Reads what an installation's callers are judged by.
select i.project, i.provider, i.owner, s.secret_hash, i.for_news
  from relevo.device_installations i
  left join relevo.device_secrets s on s.installation_id = i.installation_id
 where i.installation_id = %(installation_id)s;

-- name: use_signature
-- Notes that a signature was used; whoever brings it again, to any replica, finds no room for it.
insert into relevo.used_signatures (digest, expires_at) values (%(digest)s, to_timestamp(%(expires)s))
on conflict (digest) do nothing;

-- name: expect_state
-- Says, for this transaction, what was found when it was judged: if that is no longer so when it is written, the writing is refused.
select set_config('relevo.expects', %(expects)s, true);

-- name: keep_secret
-- Keeps the hash of a phone's secret in place of the former one.
insert into relevo.device_secrets (installation_id, secret_hash) values (%(installation_id)s, %(secret_hash)s)
on conflict (installation_id) do update set secret_hash = excluded.secret_hash, made_at = now();

-- name: list_preferences
-- Lists what an installation asks for.
select p.name, p.enabled, p.topics, p.rubro_prefix, p.tipo, p.region, p.monto_min, p.monto_max, p.moneda, p.keywords, coalesce(p.delivery, 'now') as delivery, p.updated_at
  from relevo.notification_preferences p
 where p.installation_id = %(installation_id)s and (%(name)s::text is null or p.name = %(name)s)
 order by p.name
 limit %(limit)s;

-- name: count_other_preferences
-- Locks an installation and counts its preferences of other names.
select (select count(*) from relevo.notification_preferences p where p.installation_id = i.installation_id and p.name <> %(name)s)::int
  from relevo.device_installations i where i.installation_id = %(installation_id)s for update;

-- name: list_history
-- Lists what an installation got, newest first, and why: since it has its owner, for its phone; while it was in the caller's project, for a token
-- of one project.
select d.id, d.notification_event_id as event_id, d.event_type, d.status, d.created_at, d.last_attempt_at, d.completed_at,
       e.title, e.body, e.licitacion_id, e.category, e.audience,
       case when e.audience = 'matching' then array(
         select p.name from relevo.notification_preferences p
          where p.installation_id = d.installation_id and relevo.preference_matches(p, e) order by p.name limit 20) end as preferences
  from relevo.notification_deliveries d
  left join relevo.notification_events e on e.id = d.notification_event_id
 where d.installation_id = %(installation_id)s and d.id < %(before)s
   and (not %(own)s or d.created_at >= coalesce((select i.owner_since from relevo.device_installations i
                                                  where i.installation_id = %(installation_id)s), '-infinity'))
   and (%(project)s::text is null
        or (e.project is null or e.project = %(project)s)
           and (d.project = relevo.sending_project(d.provider, %(project)s)
                or starts_with(d.project, relevo.sending_project(d.provider, %(project)s) || '::')))
 order by d.id desc
 limit %(limit)s;

-- name: find_timezone
-- Finds the time zone that an installation registered.
select i.timezone from relevo.device_installations i where i.installation_id = %(installation_id)s;
