-- Returns the rule of a category: on, off or mandatory; null where there is none, which means on.
create or replace function relevo.category_rule(of_category text) returns text language sql stable
  return case when of_category is not null then (select c.rule from relevo.categories c where c.category = of_category) end;

revoke all on function relevo.category_rule from public;
