-- needs relevo 0.3.0
-- Notes the project of each phone that is in the index of attributes already.

update relevo.attribute_index x set project = i.project from relevo.device_installations i where i.seq = x.seq and x.project is null;
