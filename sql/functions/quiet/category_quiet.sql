-- Returns what a category's events do in quiet hours; null where the category leaves it to the event type.
create or replace function relevo.category_quiet(of_category text) returns text language sql stable
  return case when of_category is not null then (select c.quiet from relevo.categories c where c.category = of_category) end;

revoke all on function relevo.category_quiet from public;
