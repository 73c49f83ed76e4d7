-- name: take_turn
-- Lets two configuration files be applied one after the other.
select relevo.take_turn('config_file');

-- name: read_configuration
-- Reads what a configuration file may set, each thing under its kind, project and name; of texts the current versions of some event types, or of all.
select 'event_type', null, t.event_type, v.value
  from relevo.event_types t
 cross join lateral (select jsonb_object_agg(f.key, f.value) as value
                       from jsonb_each(to_jsonb(t) - array['event_type', 'updated_at', 'own']) as f(key, value)
                      where f.value <> 'null' and (t.own is null or f.key = any (t.own))) v
 where v.value is not null
union all
select 'words', null, w.event_type,
       jsonb_build_object('default', w.default_locale, 'texts', w.texts,
                          'arguments', (select coalesce(jsonb_object_agg(a.key, a.value -> 'sample'), '{}') from jsonb_each(w.arguments) as a(key, value)))
  from (select distinct on (w.event_type) w.* from relevo.wordings w
         where %(types)s::text[] is null or w.event_type = any (%(types)s) order by w.event_type, w.version desc) w
union all
select 'category', null, c.category, jsonb_strip_nulls(jsonb_build_object('rule', c.rule, 'quiet', c.quiet)) || jsonb_build_object('texts', c.texts)
  from relevo.categories c
union all
select 'language', l.project, '', to_jsonb(l.locale) from relevo.project_locales l
union all
select 'quiet_hours', d.project, '', jsonb_build_object('windows', relevo.shown_windows(p.windows), 'zone', nullif(p.zone, ''))
  from relevo.quiet_defaults d join relevo.quiet_profiles p on p.id = d.quiet
union all
select 'cap', c.project, concat_ws(' ', nullif(c.category, ''), 'per', c.per),
       jsonb_strip_nulls(jsonb_build_object('category', nullif(c.category, ''), 'per', c.per, 'most', c.most, 'over', coalesce(c.over, 'skip')))
  from relevo.caps c
union all
select 'news', s.project, s.name, jsonb_strip_nulls(jsonb_build_object('kinds', s.kinds, 'webhook', s.webhook)) from relevo.news_subscriptions s
union all
select 'token', t.project, t.name, to_jsonb(string_agg(distinct t.role, ', ' order by t.role))
  from relevo.api_tokens t
 where t.revoked_at is null and (t.expires_at is null or t.expires_at > now()) and t.subject is null
 group by t.project, t.name
 order by 1, 2 nulls first, 3;

-- name: read_subscription
-- Reads the project of a subscription to news, and how much waits unread for it.
select s.project, s.head - greatest(c.position, s.tail)
  from relevo.news_subscriptions s join relevo.news_cursors c on c.subscription = s.name where s.name = %(name)s;

-- name: set_event_type
-- Sets what differs for one event type; null lets it follow the settings again.
select relevo.set_event_type(%(asked)s::jsonb);

-- name: set_token_role
-- Gives the valid tokens of a name and a project another role.
update relevo.api_tokens t set role = %(role)s
 where t.name = %(name)s and t.project is not distinct from %(project)s and t.role <> %(role)s
   and t.revoked_at is null and (t.expires_at is null or t.expires_at > now()) and t.subject is null;

-- name: revoke_tokens
-- Revokes the valid tokens of a name and a project, and ends their sessions.
with revoked as (
  update relevo.api_tokens t set revoked_at = now()
   where t.name = %(name)s and t.project is not distinct from %(project)s and t.revoked_at is null and (t.expires_at is null or t.expires_at > now())
     and t.subject is null
  returning t.id
)
delete from relevo.http_sessions s using revoked r where s.token_id = r.id;
