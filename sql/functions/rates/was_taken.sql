-- Returns whether a push service took one of the last pushes to a phone's present token, on the road of a project; by its receipts, where these
-- tell, whether one was confirmed.
create or replace function relevo.was_taken(of_installation uuid, of_project text, by_receipt boolean) returns boolean
  language sql stable
as $$
select exists (
  select from (select d.status, d.project, d.token_version from relevo.notification_deliveries d
                where d.installation_id = of_installation order by d.id desc limit 20) d
    join relevo.device_installations i on i.installation_id = of_installation and i.token_version = d.token_version
   where d.project = of_project and (d.status = 'ok' or not by_receipt and d.status in ('sent', 'unconfirmed')))
$$;

revoke all on function relevo.was_taken from public;
