-- needs relevo 0.1.0
-- The journal looks its phones up by key: nothing searches for those that were handled lately any more.

drop index relevo.device_installations_handled;
