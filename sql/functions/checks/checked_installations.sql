-- Returns installations with their tokens in the form that is kept; refuses the first with which anything is wrong, by its position in the list.
create or replace function relevo.checked_installations(installations jsonb) returns jsonb
  language plpgsql stable
as $$
declare
  one jsonb;
  place bigint;
  served text;
  changed jsonb[];
  any_others boolean := exists (select from relevo.providers p where p.provider not in ('expo', 'webhook') and relevo.native_platform(p.provider) is null);
begin
  for one, place in select i.one, i.place from jsonb_array_elements(installations) with ordinality as i(one, place)
                     where relevo.is_plain_installation(i.one) is not true
                        or any_others and exists (select from relevo.device_installations d -- an app's own provider may have tokens like Expo's
                                                   where d.token = i.one ->> 'token' and d.provider <> 'expo' offset 0) loop
    perform relevo.check_installation(one);
    if one ->> 'token' is not null then
      served := relevo.provider_of(one);
      changed[place] := one || jsonb_build_object('provider', served, 'token', relevo.normal_token(served, one ->> 'token'));
    end if;
  end loop;
  if changed is null then
    return installations;
  end if;
  return (select jsonb_agg(coalesce(changed[i.place], i.one) order by i.place) from jsonb_array_elements(installations) with ordinality as i(one, place));
exception when invalid_parameter_value then
  perform relevo.refuse(case when jsonb_array_length(installations) = 1 then sqlerrm else format('installations.%s: %s', place - 1, sqlerrm) end);
end
$$;

revoke all on function relevo.checked_installations from public;
