-- needs relevo 0.3.0
-- Lets fan-out of one project find its phones without reading those of others.

create index attribute_index_project on relevo.attribute_index (project, word, seq);
