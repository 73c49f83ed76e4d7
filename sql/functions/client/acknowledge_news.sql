-- Notes that a subscription's news were handled up to a position; returns false if they had been before.
create or replace function relevo.acknowledge_news(of_subscription text, upto bigint) returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  known relevo.news_subscriptions;
begin
  select * into known from relevo.news_subscriptions s where s.name = of_subscription;
  if not found then
    perform relevo.refuse(format('there is no subscription %s; subscribe first', left(of_subscription, 50)));
  end if;
  if known.webhook is not null then
    perform relevo.refuse(format('the news of %s are sent to its webhook, and acknowledged by that', of_subscription));
  end if;
  if upto is null or upto not between 0 and known.head then
    perform relevo.refuse(format('position must be one that was read, at most %s', known.head));
  end if;
  update relevo.news_cursors c set position = upto where c.subscription = of_subscription and c.position < upto;
  return found;
end
$$;

revoke all on function relevo.acknowledge_news from public;
