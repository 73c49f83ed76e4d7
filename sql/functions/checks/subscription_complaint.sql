-- Returns what is wrong with the parts of a Web Push subscription, in a sentence, or null. Over http only this machine is spoken to.
create or replace function relevo.subscription_complaint(parts text[]) returns text
  language plpgsql immutable
as $$
declare
  label constant text := '[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?';
begin
  return case
    when parts is null then 'token must be a Web Push subscription in JSON, with endpoint, keys.p256dh and keys.auth'
    when length(parts[1]) > 2048
      or parts[1] !~* format(E'^(https://(%s(\\.%s)*|\\[[0-9a-f:.]+\\])|http://(localhost|127\\.0\\.0\\.1|\\[::1\\]))(:[0-9]{1,5})?(/[!#-[\\]-~]*)?$', label, label)
      or length(substring(parts[1] from E'^[a-zA-Z]+://([^/:]+|\\[[^]]*\\])')) > 253
      then 'token.endpoint must be an https address of at most 2048 characters'
    when parts[2] !~ '^B[A-P][A-Za-z0-9_-]{84}[AEIMQUYcgkosw048]$'
      then 'token.keys.p256dh must be a P-256 point: 65 bytes in base64url, the first of them 4'
    when parts[3] !~ '^[A-Za-z0-9_-]{21}[AQgw]$' then 'token.keys.auth must be 16 bytes in base64url' end;
end
$$;

revoke all on function relevo.subscription_complaint from public;
