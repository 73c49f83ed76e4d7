-- needs relevo 0.3.0
-- Gives phones what tokens of FCM, APNs and Web Push need, and a time zone. It takes the strongest lock on them, and holds it for a moment: what takes longer is in
-- the next file, and phones are read meanwhile.

alter table relevo.device_installations
  add column part text not null default '',
  add column token_confirmed_at timestamptz,
  add column timezone text,
  drop constraint device_installations_token_check,
  drop constraint device_installations_platform_check,
  add constraint device_installations_token_check check (octet_length(token) between 1 and 4096) not valid,
  add constraint device_installations_platform_check check (platform in ('ios', 'android', 'unknown', 'web')) not valid,
  add constraint device_installations_part_check check (length(part) <= 253) not valid,
  add constraint device_installations_timezone_check check (length(timezone) between 1 and 64) not valid;
comment on column relevo.device_installations.part is
  'Which of the services of its provider its pushes go to: of fcm the platform, of apns the environment, of webpush the host; else empty.';
comment on column relevo.device_installations.token_confirmed_at is 'When the phone last said that this is its token; unknown before 0.4.0.';
comment on column relevo.device_installations.timezone is 'The time zone it is in, by its IANA name such as America/Santiago, if it said so.';
