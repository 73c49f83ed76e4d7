-- Returns what a push may carry beside title, body and data: the kind and bounds of each field. The package has the same table; a test compares
-- them.
create or replace function relevo.push_fields() returns jsonb language sql immutable
return '{
  "subtitle": {"kind": "text", "most": 500},
  "sound": {"kind": "text or object", "most": 100, "fields": {
    "name": {"kind": "text", "most": 100}, "critical": {"kind": "boolean"}, "volume": {"kind": "number", "low": 0, "high": 1}}},
  "badge": {"kind": "whole number or word", "low": 0, "high": 2147483647, "word": "unread"},
  "ttl": {"kind": "whole number", "low": 0, "high": 2419200},
  "expiration": {"kind": "whole number", "low": 0, "high": 253402300799},
  "priority": {"kind": "choice", "of": ["default", "normal", "high"]},
  "interruptionLevel": {"kind": "choice", "of": ["active", "critical", "passive", "time-sensitive"]},
  "relevanceScore": {"kind": "number", "low": 0, "high": 1},
  "channelId": {"kind": "text", "most": 200},
  "categoryId": {"kind": "text", "most": 200},
  "collapseId": {"kind": "text", "most": 64},
  "threadId": {"kind": "text", "most": 200},
  "targetContentId": {"kind": "text", "most": 200},
  "filterCriteria": {"kind": "text", "most": 200},
  "tag": {"kind": "text", "most": 200},
  "icon": {"kind": "text", "most": 500},
  "richContent": {"kind": "object", "fields": {"image": {"kind": "text", "most": 2000}}},
  "mutableContent": {"kind": "boolean"},
  "contentAvailable": {"kind": "boolean"},
  "_contentAvailable": {"kind": "boolean"},
  "_displayInForeground": {"kind": "boolean"}
}'::jsonb;

revoke all on function relevo.push_fields from public;
