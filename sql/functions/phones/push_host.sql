-- Returns the host of a Web Push subscription; those of one browser maker that share a domain are one.
create or replace function relevo.push_host(subscription text) returns text language sql immutable parallel safe
return regexp_replace(lower(substring(subscription from '^\{"endpoint":"https?://([^/:"]+|\[[^]]*\])')),
                      '^.*\.(notify\.windows\.com|push\.apple\.com)$', '\1');

revoke all on function relevo.push_host from public;
