-- Returns whether a text shows nothing: it is empty, or white space and characters without width.
create or replace function relevo.is_blank(said text) returns boolean
  language sql immutable
return coalesce(said, '') !~ '[^\t-\r\x1c-\x20\x85\xa0\u00ad\u1680\u180e\u2000-\u200f\u2028\u2029\u202f\u205f\u2060\u3000\ufeff]';

revoke all on function relevo.is_blank from public;
