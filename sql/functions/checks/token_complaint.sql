-- Returns what is wrong with a token of a provider, in a sentence, or null.
create or replace function relevo.token_complaint(provider text, token text) returns text
  language plpgsql immutable
as $$
begin
  -- form of Expo: written by make docs
  if provider = 'expo' and token !~ E'^(Expo(nent)?PushToken\\[[^\\[\\] \\t\\n\\r\\f\\v]{1,150}\\]|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$' then
    return 'token must look like ExponentPushToken[...], ExpoPushToken[...] or a UUID';
  end if;
  -- /written
  if octet_length(token) not between 1 and 4096 or token ~ '[[:cntrl:]]' and provider <> 'webpush' then
    return 'token must be text of 1 to 4096 bytes without control characters';
  end if;
  -- forms: written by make docs
  if provider = 'fcm' and token !~ '^((?!Expo(nent)?PushToken)[!-~]+)$' then
    return 'token must be an FCM registration token: printable ASCII characters without blanks, and not Expo''s';
  end if;
  if provider = 'apns' and token !~ '^(([0-9A-Fa-f]{2})+)$' then
    return 'token must be an APNs device token: an even number of hexadecimal digits';
  end if;
  if provider = 'huawei' and token !~ '^((?!Expo(nent)?PushToken)[!-~]+)$' then
    return 'token must be a push token of HMS Core: printable ASCII characters without blanks, and not Expo''s';
  end if;
  -- /written
  if provider = 'webpush' and token is not null then
    return relevo.subscription_complaint(relevo.subscription_parts(token));
  end if;
  return null;
end
$$;

revoke all on function relevo.token_complaint from public;
