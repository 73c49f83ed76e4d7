-- Returns the sequence numbers of the next phones that have one of some attributes' values, of one project or of all, in order and each once.
-- Each way has a plan of its own, and the former reads nothing of other projects.
create or replace function relevo.phones_with_words(words text[], of_project text, after_seq bigint, upto_seq bigint, most bigint) returns setof bigint
  language plpgsql stable
  set enable_seqscan = off -- lookups only
as $$
begin
  if of_project is null then
    return query
    select distinct c.seq
      from unnest(words) as u(word)
      cross join lateral (select x.seq from relevo.attribute_index x
                           where x.word = u.word and x.seq > after_seq and x.seq <= upto_seq order by x.seq limit most) c
     order by c.seq limit most;
  else
    return query
    select distinct c.seq
      from unnest(words) as u(word)
      cross join lateral (select x.seq from relevo.attribute_index x
                           where x.project = of_project and x.word = u.word and x.seq > after_seq and x.seq <= upto_seq order by x.seq limit most) c
     order by c.seq limit most;
  end if;
end
$$;

revoke all on function relevo.phones_with_words from public;
