-- Returns until when what falls due in a project, as deliveries name it, is not sent because of shadow mode: infinity while the mode lasts, null if it
-- never had it. News to the app's webhook follow the project of their subscription; those of all projects follow only the mode of all projects.
create or replace function relevo.shadow_until(of_project text) returns timestamptz
  language plpgsql stable -- its plan is kept: each claim asks
as $$
begin
  return (select max(coalesce(m.until, 'infinity'))
            from relevo.shadow_modes m
           where m.project = ''
              or case when not relevo.is_news_project(of_project) then m.project = relevo.name_of_project(of_project)
                      else exists (select from relevo.news_subscriptions s
                                    where s.project = m.project and of_project in ('relevo.news::' || s.webhook, 'webhook::news.' || s.webhook)) end);
end
$$;

revoke all on function relevo.shadow_until from public;
