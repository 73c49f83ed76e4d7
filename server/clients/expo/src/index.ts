export type { UsePreferences } from "@relevo/client/react";
export { RelevoProvider, type RelevoProviderProps, useInbox, usePreferences, useRelevo, useRelevoPush, type UseRelevoPush, type UseRelevoPushOptions } from "./react.js";
export { type Ask, type Category, type Channel, dataOf, linkOf, type Permission, PushSession, type PushState, type SessionOptions, type Status } from "./session.js";
export { secureStorage } from "./storage.js";
