-- Returns a token in the form that is kept, so that equal ones are equal texts; null for a Web Push subscription that is none.
create or replace function relevo.normal_token(provider text, token text) returns text
  language plpgsql immutable
as $$
declare
  parts text[] := case provider when 'webpush' then relevo.subscription_parts(token) end;
begin
  return case when provider = 'apns' then lower(token)
              when provider <> 'webpush' then token
              when parts is not null then format('{"endpoint":"%s","keys":{"p256dh":"%s","auth":"%s"}}', variadic parts) end;
end
$$;

revoke all on function relevo.normal_token from public;
