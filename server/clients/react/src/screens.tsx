import { type InboxItemOut, type InboxOptions, type InboxSource, InboxStore, type PreferencesSource } from "@relevo/client";
import { useInboxStore, type UseInbox } from "@relevo/client/react";
import { createContext, type ReactNode, useContext, useEffect, useMemo, useSyncExternalStore } from "react";
import { type Texts, textsFor } from "./texts.js";

/** What the screens need: `RelevoPush` of `@relevo/web`, `useRelevo()` of `@relevo/expo`, or something of your own. */
export interface ScreensPush {
  readonly device: InboxSource & PreferencesSource;
  state(): { readonly status: "idle" | "registering" | "registered" | "offline" | "failed" | "logged-out" };
  subscribe(listener: () => void): () => void;
  /** Try again to register. */
  register(): Promise<void>;
}

export interface RelevoScreensProps {
  push: ScreensPush;
  /** The language of the screens: English, or Spanish for `es…`; also that of texts and categories. The browser's or phone's unless said. */
  locale?: string;
  /** Texts in place of ours. */
  texts?: Partial<Texts>;
  /** What the system prefers unless said. */
  theme?: "light" | "dark";
  /** Schemes of links that your app opens, beside http and https: `["myshop"]`. */
  schemes?: readonly string[];
  /** Called in place of following an item's link. */
  onOpen?: (item: InboxItemOut, link: string | null) => void;
  /** Which items: by status, category or type; and how many a page has. */
  inbox?: Omit<InboxOptions, "locale">;
  children?: ReactNode;
}

export interface Screens extends Required<Pick<RelevoScreensProps, "push" | "locale" | "schemes">>, Pick<RelevoScreensProps, "theme" | "onOpen"> {
  texts: Texts;
  store: InboxStore;
  status: ReturnType<ScreensPush["state"]>["status"];
  /** Keep the inbox up to date, until the answer is called. */
  watch: () => () => void;
}

const Context = createContext<Screens | null>(null);

/** What all screens below share: one inbox, a language, a theme. */
export function RelevoScreens({ push, locale = languageOfHere(), texts: own, theme, schemes = [], onOpen, inbox = {}, children }: RelevoScreensProps): ReactNode {
  const { status } = useSyncExternalStore(push.subscribe, push.state, push.state);
  const { status: of, category, type, pageSize } = inbox;
  const isOver = status === "logged-out"; // whoever logs in next begins with an inbox of their own
  const store = useMemo(() => {
    const asked = { ...(of ? { status: of } : {}), ...(category ? { category } : {}), ...(type ? { type } : {}), ...(pageSize ? { pageSize } : {}) };
    return new InboxStore(push.device, { ...asked, locale });
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [push.device, of, category, type, pageSize, locale, isOver]);
  const watch = useMemo(() => sharedWatch(store), [store]);
  const texts = useMemo(() => textsFor(locale, own), [locale, own]);
  const screens = { push, locale, schemes, texts, store, status, watch, ...(theme ? { theme } : {}), ...(onOpen ? { onOpen } : {}) };
  return <Context.Provider value={screens}>{children}</Context.Provider>;
}

export function useScreens(): Screens {
  const screens = useContext(Context);
  if (!screens) throw new Error("There is no <RelevoScreens> above this.");
  return screens;
}

/** The inbox that all screens share, up to date while one of them is shown. */
export function useScreensInbox(): UseInbox {
  const { store, watch, status } = useScreens();
  const active = status === "registered";
  useEffect(() => (active ? watch() : undefined), [watch, active]);
  return useInboxStore(store);
}

/** What a screen shows of its state: what it has, that it waits, or what went wrong. */
export function phaseOf(status: Screens["status"], { loading, error }: { loading: boolean; error: unknown }, has: boolean): "ready" | "loading" | "failed" | "logged-out" {
  if (status === "logged-out") return "logged-out";
  if (has) return "ready";
  if (status === "failed" || status === "offline") return "failed";
  if (status !== "registered" || loading) return "loading";
  return error ? "failed" : "ready";
}

/** One watch for all who watch a store: it ends with the last of them. */
function sharedWatch(store: InboxStore): () => () => void {
  let [users, stop] = [0, (): void => undefined];
  return () => {
    users += 1;
    if (users === 1) stop = store.watch();
    return () => {
      users -= 1;
      if (users === 0) stop();
    };
  };
}

function languageOfHere(): string {
  return Intl.DateTimeFormat().resolvedOptions().locale;
}

/** When an item came, in the words of a language. */
export function timeOf(at: string, locale: string): string {
  return new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "short" }).format(new Date(at));
}
