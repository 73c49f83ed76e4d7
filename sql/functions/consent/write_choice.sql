-- Records a choice with the face that its caller proved (app, phone or operator), and applies it to the owner's phones; returns whether the
-- record grew. It runs with its caller's rights: the app's role can reach it through relevo.choose alone, and so cannot claim another face.
create or replace function relevo.write_choice(asked jsonb, face text) returns boolean
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  choice relevo.consents;
  channels text[] := array['push', 'web'];
begin
  perform relevo.check_choice(asked);
  choice.owner := asked ->> 'owner';
  choice.project := coalesce(asked ->> 'project', 'default');
  choice.category := asked ->> 'category';
  choice.wanted := (asked ->> 'wanted')::boolean;
  choice.face := write_choice.face;
  choice.locale := asked ->> 'locale';
  choice.words_digest := sha256(convert_to(asked ->> 'words', 'UTF8'));
  perform relevo.lock_owner(choice.owner);
  channels := array(select c.channel from unnest(channels) as c(channel)
                     where c.channel = coalesce(asked ->> 'channel', c.channel) and not relevo.is_recorded(choice, c.channel));
  if cardinality(channels) = 0 then
    return false;
  end if;
  if choice.face = 'phone' then
    perform relevo.check_choices_of_day(choice, channels);
  end if;
  insert into relevo.consent_words (owner, project, digest, words)
  select choice.owner, choice.project, choice.words_digest, asked ->> 'words' where choice.words_digest is not null
  on conflict do nothing;
  insert into relevo.consents (owner, project, category, channel, wanted, face, locale, words_digest)
  select choice.owner, choice.project, choice.category, c.channel, choice.wanted, choice.face, choice.locale, choice.words_digest
    from unnest(channels) as c(channel);
  perform relevo.thin_choices(choice, c.channel) from unnest(channels) as c(channel);
  insert into relevo.owner_rules as r (owner, project, choices)
  select choice.owner, choice.project, jsonb_object_agg(c.channel, jsonb_build_object(choice.category, choice.wanted)) from unnest(channels) as c(channel)
  on conflict (owner, project) do update
     set choices = r.choices || (select jsonb_object_agg(n.key, coalesce(r.choices -> n.key, '{}') || n.value) from jsonb_each(excluded.choices) as n(key, value));
  perform relevo.apply_to_phones(choice.owner, choice.project);
  return true;
end
$$;

revoke all on function relevo.write_choice from public;
