-- Returns a question about a phone by the name that SQL, Python and HTTP share: installation, as it was called before, is installation_id. It leaves in 0.6.
create or replace function relevo.current_names(asked jsonb) returns jsonb
  language sql immutable
return case when jsonb_typeof(asked) = 'object' and asked ? 'installation' and not asked ? 'installation_id'
            then asked - 'installation' || jsonb_build_object('installation_id', asked -> 'installation') else asked end;

revoke all on function relevo.current_names from public;
