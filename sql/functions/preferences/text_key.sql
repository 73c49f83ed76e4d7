-- Folds case and accents by rules of its own, for a database without a locale folds neither Ñ nor É.
create or replace function relevo.text_key(x text) returns text language sql immutable strict parallel safe
  return lower(regexp_replace(normalize(x, NFD), '[\u0300-\u036f]', '', 'g') collate "C");

revoke all on function relevo.text_key from public;
