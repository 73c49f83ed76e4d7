-- needs relevo 0.3.0
-- Makes room for the languages of projects.

create table relevo.project_locales (
  project text primary key check (length(project) between 1 and 200),
  locale  text not null check (length(locale) between 1 and 35)
);
comment on table relevo.project_locales is 'The language of a project: for phones whose own none of a type''s texts is in, or that did not say one.';
