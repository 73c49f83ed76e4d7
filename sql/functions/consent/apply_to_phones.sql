-- Copies an owner's rules to the phones they hold for, where something changed; returns how many phones the owner has there.
create or replace function relevo.apply_to_phones(of_owner text, of_project text) returns int
  language plpgsql volatile
as $$
declare
  phones uuid[] := array(select i.installation_id from relevo.device_installations i
                          where i.owner = of_owner and (of_project = '' or i.project = of_project) order by i.installation_id for no key update);
begin
  update relevo.device_installations i set refused = r.refused, accepted = r.accepted, blocked = r.blocked, owner_quiet = r.quiet, owner_attributes = r.attributes, updated_at = now()
    from (select n.installation_id, t.* from relevo.device_installations n
            cross join lateral relevo.rules_for_phone(n.owner, n.project, n.provider) t
           where n.installation_id = any (phones)) r
   where i.installation_id = r.installation_id and (i.refused, i.accepted, i.blocked, i.owner_quiet, i.owner_attributes) is distinct from (r.refused, r.accepted, r.blocked, r.quiet, r.attributes);
  return cardinality(phones);
end
$$;

revoke all on function relevo.apply_to_phones from public;
