-- Returns the name of a region in one form: "Región de Los Ríos" and "Los Ríos" are one.
create or replace function relevo.region_key(x text) returns text language sql immutable strict parallel safe
  return nullif(regexp_replace(btrim(relevo.words(x)), '^(region )?(del? )?(la |los |las |el )?', ''), '');

revoke all on function relevo.region_key from public;
