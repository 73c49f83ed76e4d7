-- Returns the words of an audience's rarest attribute, by which fan-out looks up phones. It counts phones in one project or in all, up to a
-- thousand per attribute. Of one attribute there is nothing to compare.
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
