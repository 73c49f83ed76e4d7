-- needs relevo 0.3.0
-- Lets subscriptions ask for news of what was opened.

alter table relevo.news_subscriptions drop constraint news_subscriptions_kinds_check,
  add constraint news_subscriptions_kinds_check check (cardinality(kinds) > 0
    and kinds <@ array['event.finished', 'delivery.failed', 'token.disabled', 'installation.unregistered', 'delivery.opened']);

alter table relevo.notification_events validate constraint notification_events_collapse_check;
