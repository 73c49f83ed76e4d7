-- Returns whether a phone has the attributes that an event asks for, its own before those of its owner; true if the event asks for none.
create or replace function relevo.fits_attributes(of_owner jsonb, of_phone jsonb, wanted jsonb) returns boolean
  language sql immutable
return case when wanted is null then true else relevo.attribute_mismatch(relevo.known_attributes(of_owner, of_phone), wanted) is null end;

revoke all on function relevo.fits_attributes from public;
