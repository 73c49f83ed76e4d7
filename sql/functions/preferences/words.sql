-- Returns the words of a text, folded, with one blank around each: ' word ' is found in it exactly if the word is. Signs are listed by their
-- ranges, for a database without a locale knows no letter beyond z.
create or replace function relevo.words(x text) returns text language sql immutable strict parallel safe
  return ' ' || btrim(regexp_replace(relevo.text_key(x),
    '[\u0001-\u002f\u003a-\u0060\u007b-\u00bf\u00d7\u00f7\u2000-\u2bff\u2e00-\u2e7f\u3000-\u303f\ufe00-\ufe0f\U0001f000-\U0001faff]+', ' ', 'g')) || ' ';

revoke all on function relevo.words from public;
