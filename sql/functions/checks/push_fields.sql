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
  "image": {"kind": "text", "most": 2000},
  "link": {"kind": "text", "most": 2000},
  "actions": {"kind": "list", "most": 4, "unique": "id", "each": {"kind": "object", "needs": ["id", "title"], "fields": {
    "id": {"kind": "text", "most": 100}, "title": {"kind": "text", "most": 200}, "icon": {"kind": "text", "most": 500}, "link": {"kind": "text", "most": 2000}}}},
  "richContent": {"kind": "object", "fields": {"image": {"kind": "text", "most": 2000}}},
  "mutableContent": {"kind": "boolean"}, "contentAvailable": {"kind": "boolean"}, "_contentAvailable": {"kind": "boolean"},
  "_displayInForeground": {"kind": "boolean"},
  "android": {"kind": "object", "fields": {
    "color": {"kind": "color"}, "ticker": {"kind": "text", "most": 200}, "clickAction": {"kind": "text", "most": 200}, "sticky": {"kind": "boolean"},
    "localOnly": {"kind": "boolean"}, "directBootOk": {"kind": "boolean"}, "visibility": {"kind": "choice", "of": ["PRIVATE", "PUBLIC", "SECRET"]},
    "notificationPriority": {"kind": "choice", "of": ["PRIORITY_MIN", "PRIORITY_LOW", "PRIORITY_DEFAULT", "PRIORITY_HIGH", "PRIORITY_MAX"]},
    "titleLocKey": {"kind": "text", "most": 200}, "titleLocArgs": {"kind": "list", "most": 10, "each": {"kind": "text", "most": 200}},
    "bodyLocKey": {"kind": "text", "most": 200}, "bodyLocArgs": {"kind": "list", "most": 10, "each": {"kind": "text", "most": 200}},
    "sound": {"kind": "text or object", "most": 100, "fields": {"name": {"kind": "text", "most": 100}, "critical": {"kind": "boolean"}, "volume": {"kind": "number", "low": 0, "high": 1}}},
    "badge": {"kind": "whole number", "low": 0, "high": 2147483647}, "priority": {"kind": "choice", "of": ["default", "normal", "high"]},
    "channelId": {"kind": "text", "most": 200}, "categoryId": {"kind": "text", "most": 200}, "tag": {"kind": "text", "most": 200},
    "icon": {"kind": "text", "most": 500}, "image": {"kind": "text", "most": 2000}, "link": {"kind": "text", "most": 2000},
    "actions": {"kind": "list", "most": 4, "unique": "id", "each": {"kind": "object", "needs": ["id", "title"], "fields": {"id": {"kind": "text", "most": 100}, "title": {"kind": "text", "most": 200}, "icon": {"kind": "text", "most": 500}, "link": {"kind": "text", "most": 2000}}}}}},
  "apns": {"kind": "object", "fields": {
    "launchImage": {"kind": "text", "most": 200}, "titleLocKey": {"kind": "text", "most": 200},
    "titleLocArgs": {"kind": "list", "most": 10, "each": {"kind": "text", "most": 200}}, "subtitleLocKey": {"kind": "text", "most": 200},
    "subtitleLocArgs": {"kind": "list", "most": 10, "each": {"kind": "text", "most": 200}}, "locKey": {"kind": "text", "most": 200},
    "locArgs": {"kind": "list", "most": 10, "each": {"kind": "text", "most": 200}}, "subtitle": {"kind": "text", "most": 500},
    "sound": {"kind": "text or object", "most": 100, "fields": {"name": {"kind": "text", "most": 100}, "critical": {"kind": "boolean"}, "volume": {"kind": "number", "low": 0, "high": 1}}},
    "badge": {"kind": "whole number", "low": 0, "high": 2147483647}, "priority": {"kind": "choice", "of": ["default", "normal", "high"]},
    "interruptionLevel": {"kind": "choice", "of": ["active", "critical", "passive", "time-sensitive"]},
    "relevanceScore": {"kind": "number", "low": 0, "high": 1}, "categoryId": {"kind": "text", "most": 200}, "collapseId": {"kind": "text", "most": 64},
    "threadId": {"kind": "text", "most": 200}, "targetContentId": {"kind": "text", "most": 200}, "filterCriteria": {"kind": "text", "most": 200},
    "image": {"kind": "text", "most": 2000}, "link": {"kind": "text", "most": 2000},
    "actions": {"kind": "list", "most": 4, "unique": "id", "each": {"kind": "object", "needs": ["id", "title"], "fields": {"id": {"kind": "text", "most": 100}, "title": {"kind": "text", "most": 200}, "icon": {"kind": "text", "most": 500}, "link": {"kind": "text", "most": 2000}}}},
    "mutableContent": {"kind": "boolean"}, "contentAvailable": {"kind": "boolean"}}},
  "web": {"kind": "object", "fields": {
    "badgeIcon": {"kind": "text", "most": 500}, "requireInteraction": {"kind": "boolean"}, "renotify": {"kind": "boolean"}, "silent": {"kind": "boolean"},
    "vibrate": {"kind": "list", "most": 20, "each": {"kind": "whole number", "low": 0, "high": 10000}}, "lang": {"kind": "text", "most": 35},
    "dir": {"kind": "choice", "of": ["auto", "ltr", "rtl"]}, "timestamp": {"kind": "whole number", "low": 0, "high": 253402300799000},
    "urgency": {"kind": "choice", "of": ["very-low", "low", "normal", "high"]}, "badge": {"kind": "whole number", "low": 0, "high": 2147483647},
    "priority": {"kind": "choice", "of": ["default", "normal", "high"]}, "collapseId": {"kind": "text", "most": 64}, "tag": {"kind": "text", "most": 200},
    "icon": {"kind": "text", "most": 500}, "image": {"kind": "text", "most": 2000}, "link": {"kind": "text", "most": 2000},
    "actions": {"kind": "list", "most": 4, "unique": "id", "each": {"kind": "object", "needs": ["id", "title"], "fields": {"id": {"kind": "text", "most": 100}, "title": {"kind": "text", "most": 200}, "icon": {"kind": "text", "most": 500}, "link": {"kind": "text", "most": 2000}}}}}}
}'::jsonb;

revoke all on function relevo.push_fields from public;
