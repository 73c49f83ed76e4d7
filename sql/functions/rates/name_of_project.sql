-- Returns the app's own name of a project that deliveries name by relevo.sending_project: without its provider, and without the part of it.
create or replace function relevo.name_of_project(sending text) returns text language sql immutable parallel safe
return case when strpos(sending, '::') = 0 then sending
            when relevo.native_platform(split_part(sending, '::', 1)) is null then substr(sending, strpos(sending, '::') + 2)
            else coalesce(substring(substr(sending, strpos(sending, '::') + 2) from '^(.+)::'), substr(sending, strpos(sending, '::') + 2)) end;

revoke all on function relevo.name_of_project from public;
