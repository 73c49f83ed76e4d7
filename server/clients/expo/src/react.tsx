import { Device, type InboxOptions, type InstallationBody, type KeyValue, RelevoClient, type Sign } from "@relevo/client";
import { useInboxOf, type UseInbox, usePreferencesOf, type UsePreferences } from "@relevo/client/react";
import * as Notifications from "expo-notifications";
import { createContext, type ReactNode, useContext, useEffect, useMemo, useRef, useSyncExternalStore } from "react";
import { type Ask, type Category, type Channel, PushSession, type PushState } from "./session.js";
import { secureStorage } from "./storage.js";

export interface RelevoProviderProps {
  /** Where Relevo answers, such as `https://relay.example`. */
  url: string;
  project?: string;
  /** Ask your own server for a signature: it signs this phone for the user who is logged in there. */
  sign?: Sign;
  /** Who is logged in; left out, nobody is. */
  owner?: string | undefined;
  /** False until it is known who is logged in: nothing is registered until then. */
  enabled?: boolean;
  provider?: "expo" | "native";
  environment?: NonNullable<InstallationBody["environment"]>;
  channels?: readonly Channel[];
  categories?: readonly Category[];
  /** The phone's secure storage unless said. */
  storage?: KeyValue;
  fetch?: typeof fetch;
  children?: ReactNode;
}

const Session = createContext<PushSession | null>(null);

/** Keeps this phone registered for whoever is logged in. */
export function RelevoProvider({ url, project, sign, owner, enabled = true, provider, environment, channels, categories, storage, fetch, children }: RelevoProviderProps): ReactNode {
  const latest = useRef(sign);
  latest.current = sign;
  const has = sign !== undefined;
  const session = useMemo(() => {
    const client = new RelevoClient({ url, ...(fetch ? { fetch } : {}) });
    const signing: Sign = (phone) => (latest.current as Sign)(phone);
    const device = new Device({ client, storage: storage ?? secureStorage, ...(project ? { project } : {}), ...(has ? { sign: signing } : {}) });
    return new PushSession({ device, ...(provider ? { provider } : {}), ...(environment ? { environment } : {}), ...(channels ? { channels } : {}), ...(categories ? { categories } : {}) });
    // eslint-disable-next-line react-hooks/exhaustive-deps -- channels, categories and fetch may be new objects at every render
  }, [url, project, has, provider, environment, storage]);
  useEffect(() => session.start(), [session]);
  useEffect(() => {
    void session.identify(owner, enabled);
  }, [session, owner, enabled]);
  return <Session.Provider value={session}>{children}</Session.Provider>;
}

/** The session, for what no hook does. */
export function useRelevo(): PushSession {
  const session = useContext(Session);
  if (!session) throw new Error("There is no <RelevoProvider> above this.");
  return session;
}

export interface UseRelevoPushOptions {
  /** Whether to ask for permission as soon as this is shown; `never` unless said: then call `register("now")`. */
  ask?: Ask;
  onTap?: (response: Notifications.NotificationResponse) => void;
  onReceived?: (notification: Notifications.Notification) => void;
}

export type UseRelevoPush = Pick<PushState, "status" | "permission" | "installationId" | "error"> & Pick<PushSession, "register" | "logOut">;

/** Whether this phone gets pushes, and what to do about it. */
export function useRelevoPush({ ask = "never", onTap, onReceived }: UseRelevoPushOptions = {}): UseRelevoPush {
  const session = useRelevo();
  const { status, permission, installationId, error } = useSyncExternalStore(session.subscribe, session.state, session.state);
  const handlers = useRef({ onTap, onReceived });
  handlers.current = { onTap, onReceived };
  const hears = onTap !== undefined;
  useEffect(() => (hears ? session.onTap((response) => handlers.current.onTap?.(response)) : undefined), [session, hears]);
  useEffect(() => session.onReceived((notification) => handlers.current.onReceived?.(notification)), [session]);
  useEffect(() => {
    if (ask !== "never") void session.register(ask);
  }, [session, ask]);
  return { status, permission, installationId, error, register: session.register, logOut: session.logOut };
}

/** The inbox of whoever is logged in, up to date while the app is open. With `badge`, the app's icon counts what is unread. */
export function useInbox({ badge = false, ...options }: InboxOptions & { badge?: boolean } = {}): UseInbox {
  const session = useRelevo();
  const { status, foreground, received } = useSyncExternalStore(session.subscribe, session.state, session.state);
  const active = foreground && status === "registered";
  const inbox = useInboxOf(session.device, { ...options, active });
  const { refresh, unread } = inbox;
  useEffect(() => {
    if (received > 0 && active) void refresh();
  }, [received, active, refresh]);
  useEffect(() => {
    if (badge && active) void Notifications.setBadgeCountAsync(unread === "99+" ? 99 : unread).catch(() => undefined);
  }, [badge, active, unread]);
  return inbox;
}

/** What this phone asks for, and what its owner chose: categories in the phone's language, quiet hours. */
export function usePreferences(): UsePreferences {
  const session = useRelevo();
  const { status } = useSyncExternalStore(session.subscribe, session.state, session.state);
  const { locale } = Intl.DateTimeFormat().resolvedOptions();
  return usePreferencesOf(session.device, { active: status === "registered", locale });
}
