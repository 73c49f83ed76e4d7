-- Returns the words of the attribute of an audience that the fewest phones have, in one project or in all, as far as the first thousand phones tell: fan-out looks these up.
-- Of one attribute there is nothing to compare.
create or replace function relevo.rarest_words(wanted jsonb, of_project text) returns text[]
  language plpgsql stable
as $$
begin
  if (select count(*) from jsonb_object_keys(wanted)) = 1 then
    return relevo.attribute_words(wanted);
  end if;
  return (select g.words
            from (select w.key, relevo.attribute_words(jsonb_build_object(w.key, w.value)) as words from jsonb_each(wanted) as w(key, value)) g
           order by (select count(*) from relevo.phones_with_words(g.words, of_project, 0, 9223372036854775807, 1000)), g.key
           limit 1);
end
$$;

revoke all on function relevo.rarest_words from public;
