-- needs relevo 0.2.0
-- A token that moves from one installation to another while an event goes out reached one device twice: the former holder's push was sent, and
-- then the new one's. Moves are noted, and where the former holder's push went out the new one's is skipped.

create table relevo.moved_tokens (
  token_key       bigint not null, -- a hash of it
  installation_id uuid not null references relevo.device_installations on delete cascade,
  moved_at        timestamptz not null default now(),
  primary key (token_key, installation_id)
);

create index moved_tokens_by_time on relevo.moved_tokens (moved_at);
create index moved_tokens_phone on relevo.moved_tokens (installation_id);

comment on table relevo.moved_tokens is 'Which installations lost a push token to another one lately.';

alter table relevo.device_installations add column token_taken_at timestamptz;

comment on column relevo.device_installations.token_taken_at is 'When it took its token over from another installation that had it lately.';

-- Notes which installation lost its token to another.
create function relevo.note_moved_token() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
begin
  insert into relevo.moved_tokens as m (token_key, installation_id) values (hashtextextended(old.token, 0), old.installation_id)
  on conflict (token_key, installation_id) do update set moved_at = excluded.moved_at;
  return null;
end
$$;

create trigger note_moved_token after update on relevo.device_installations
  for each row when (old.token is not null and new.token is null and new.invalid_reason = 'token_moved')
  execute function relevo.note_moved_token();

-- Notes when an installation took over a token that another had lately. One that is new gets nothing that was fanned out before.
create function relevo.note_taken_token() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
begin
  if exists (select from relevo.moved_tokens m where m.token_key = hashtextextended(new.token, 0)) then
    new.token_taken_at := now();
  end if;
  return new;
end
$$;

create trigger note_taken_token before update on relevo.device_installations
  for each row when (new.token is not null and new.token is distinct from old.token) execute function relevo.note_taken_token();

-- Tells whether an event's push went out to a token by another installation, which had it then. One that is still on its way does not count:
-- should it fail, this one must arrive.
create function relevo.told_already_1(of_day date, of_event bigint, by_other_than uuid, token text, since timestamptz) returns boolean
  language plpgsql stable
as $$
begin
  return exists (select from relevo.moved_tokens m
                   join relevo.notification_deliveries d
                     on d.event_day = of_day and d.notification_event_id = of_event and d.installation_id = m.installation_id
                  where m.token_key = hashtextextended(token, 0) and m.installation_id <> by_other_than and m.moved_at >= since
                    and d.status in ('sent', 'ok', 'unconfirmed', 'unknown'));
end
$$;

-- Looks where the deliveries of some chunks go, and what stands in the way of each, as it is now; the chunks in their order. It also tells
-- of which lease they are, in which file the phones lie and from which transaction on one may have written what is not seen here, and where in
-- that file each phone lies.
create or replace function relevo.look_at_3(chunks relevo.due_chunks[], at timestamptz, lease int)
  returns table (event_day date, event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint,
                 deadline_at timestamptz, seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[],
                 versions int[], platforms text[], locales text[], obstacles text[], lease_ms int, as_of text, places text)
  language sql stable
as $$
  select c.event_day, c.event_id, c.event_type, coalesce(e.at_most_once, false), c.attempt_count, c.lapse_count, e.deadline_at,
         extract(epoch from e.deadline_at - at)::float8, c.created_at, c.ids, c.installations, l.tokens, l.versions, l.platforms, l.locales, l.obstacles,
         lease, pg_relation_filenode('relevo.device_installations') || ' ' || pg_snapshot_xmin(pg_current_snapshot())::xid, l.places::text
    from unnest(chunks) c
    left join relevo.notification_events e on e.id = c.event_id
    cross join lateral (
      select array_agg(i.token) as tokens, array_agg(i.token_version) as versions, array_agg(i.platform) as platforms,
             array_agg(i.locale) as locales, array_agg(i.ctid) as places,
             array_agg(coalesce(
               relevo.event_obstacle(e.id, e.ended_at, e.deadline_at, at, i.handled_before >= c.created_at
                 or i.owner is not null and (select exists (select from relevo.event_completions)) and exists (
                      select from relevo.event_completions h where h.event_id = c.event_id and h.owner = i.owner)),
               relevo.phone_obstacle(i.installation_id, i.may_receive, i.opt_outs, e.category),
               case when e.audience = 'matching' and not exists (
                      select from relevo.notification_preferences p
                       where p.installation_id = u.installation_id and relevo.preference_matches(p, e)) then 'preference_changed'
                    when (i.token_taken_at >= e.fanout_started_at) is true -- unknown would not keep the next from being asked
                         and relevo.told_already_1(c.event_day, c.event_id, u.installation_id, i.token, e.fanout_started_at) then 'told_already'
                    when c.lane = 'bulk' and (select exists (select from relevo.event_repeats r where r.held_at is not null)) and exists (
                      select from relevo.event_repeats r where r.event_id = c.event_id and r.held_at is not null) then 'repeats_held'
               end)) as obstacles
        from unnest(c.installations) as u(installation_id)
        -- looked up one by one: the arrays are in the order of the chunk, whatever the plan
        left join lateral (select x.installation_id, x.token, x.token_version, x.platform, x.locale, x.owner, x.handled_before, x.opt_outs, x.token_taken_at,
                                  relevo.may_receive(x) as may_receive, x.ctid
                             from relevo.device_installations x where x.installation_id = u.installation_id offset 0) i on true) l
$$;

revoke all on function relevo.note_moved_token(), relevo.note_taken_token(),
  relevo.told_already_1(date, bigint, uuid, text, timestamptz) from public;
