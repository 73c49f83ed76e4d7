-- Attributes of owners and phones, by which an app chooses the audience of an event.

create table relevo.attribute_index (
  word    text not null,
  seq     bigint not null, -- the phone's
  project text, -- the phone's
  primary key (word, seq)
);
create index attribute_index_project on relevo.attribute_index (project, word, seq);
comment on table relevo.attribute_index is
  'Each value of each attribute that a phone has, its own or its owner''s, as attribute_words writes it: an audience by attributes finds its phones here, and the phone''s row decides.';
