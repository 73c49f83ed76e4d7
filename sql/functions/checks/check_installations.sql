-- Refuses the first of some installations with which anything is wrong, by its place.
create or replace function relevo.check_installations(installations jsonb) returns void
  language plpgsql stable
as $$
declare
  one jsonb;
  place bigint;
begin
  for one, place in select i.one, i.place from jsonb_array_elements(installations) with ordinality as i(one, place)
                     where relevo.is_plain_installation(i.one) is not true loop
    perform relevo.check_installation(one);
  end loop;
exception when invalid_parameter_value then
  perform relevo.refuse(case when jsonb_array_length(installations) = 1 then sqlerrm else format('installations.%s: %s', place - 1, sqlerrm) end);
end
$$;

revoke all on function relevo.check_installations from public;
