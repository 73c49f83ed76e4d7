-- Returns the patterns by which keywords are found in an event's words; a keyword without a letter is left out.
create or replace function relevo.keyword_patterns(keywords text[]) returns text[] language sql immutable strict parallel safe
  return array(select '%' || relevo.words(k.word) || '%' from unnest(keywords) as k(word) where btrim(relevo.words(k.word)) <> '');

revoke all on function relevo.keyword_patterns from public;
