import { useCallback, useEffect, useMemo, useState, useSyncExternalStore } from "react";
import type { CategoryBody, Hours, NamedPreference, PreferenceBody } from "./generated/index.js";
import { type InboxOptions, type InboxSource, type InboxState, InboxStore } from "./inbox.js";
import type { PreferenceChange, PreferencesSource } from "./preferences.js";

export type UseInbox = InboxState & Pick<InboxStore, "refresh" | "loadMore" | "markRead" | "markUnread" | "markSeen" | "markAllRead" | "archive" | "unarchive">;

/** An inbox for a screen: read at once, kept up to date while `active`. */
export function useInboxOf(source: InboxSource, { active = true, status, category, type, pageSize, locale }: InboxOptions & { active?: boolean } = {}): UseInbox {
  const store = useMemo(
    () =>
      new InboxStore(source, {
        ...(status ? { status } : {}),
        ...(category ? { category } : {}),
        ...(type ? { type } : {}),
        ...(pageSize ? { pageSize } : {}),
        ...(locale ? { locale } : {}),
      }),
    [source, status, category, type, pageSize, locale],
  );
  useEffect(() => {
    return active ? store.watch() : undefined;
  }, [store, active]);
  return useInboxStore(store);
}

/** What an inbox shows now, and what can be done with it. */
export function useInboxStore(store: InboxStore): UseInbox {
  const state = useSyncExternalStore(store.subscribe, store.state, store.state);
  const { refresh, loadMore, markRead, markUnread, markSeen, markAllRead, archive, unarchive } = store;
  return { ...state, refresh, loadMore, markRead, markUnread, markSeen, markAllRead, archive, unarchive };
}

interface Choices {
  preferences: readonly NamedPreference[];
  /** What pushes there are, in the language asked for, and whether they are wanted. */
  categories: readonly CategoryBody[];
  /** The quiet hours that hold; null until they are read. */
  quiet: Hours | null;
  loading: boolean;
  error: unknown;
}

export interface UsePreferences extends Choices {
  refresh: () => Promise<void>;
  /** Set one preference whole; null removes it. */
  set: (name: string, preference: PreferenceBody | null) => Promise<void>;
  /** Change fields of a preference; the others stay as they are. */
  change: (name: string, change: PreferenceChange) => Promise<void>;
  /** Choose a category, or refuse it, on all phones of who is logged in; `words` are those beside the switch. */
  choose: (category: string, wanted: boolean, words?: string) => Promise<void>;
  /** Set the windows of quiet hours: of this phone if it has hours of its own, else of all phones of who is logged in. */
  setQuiet: (windows: string[] | null) => Promise<void>;
}

const NOTHING: Choices = { preferences: [], categories: [], quiet: null, loading: true, error: null };

/** A person's choices for a screen: read while `active`, in a language. What could not be saved stays as it was, and is thrown. */
export function usePreferencesOf(source: PreferencesSource, { active = true, locale }: { active?: boolean; locale?: string } = {}): UsePreferences {
  const [told, setTold] = useState(NOTHING);
  const refresh = useCallback(async () => {
    setTold((before) => ({ ...before, loading: true }));
    try {
      const [preferences, categories, quiet] = await Promise.all([source.preferences(), source.categories(locale), source.quiet()]);
      setTold({ preferences, categories, quiet, loading: false, error: null });
    } catch (error) {
      setTold((before) => ({ ...before, loading: false, error }));
    }
  }, [source, locale]);
  const set = useCallback(
    async (name: string, preference: PreferenceBody | null) => {
      await source.setPreference(name, preference);
      await refresh();
    },
    [source, refresh],
  );
  const change = useCallback(
    async (name: string, fields: PreferenceChange) => {
      const changed = await source.changePreference(name, fields);
      setTold((before) => ({ ...before, preferences: [...before.preferences.filter((each) => each.name !== name), changed] }));
    },
    [source],
  );
  const choose = useCallback(
    async (category: string, wanted: boolean, words?: string) => {
      await source.choose(category, { wanted, ...(locale ? { locale } : {}), ...(words ? { words } : {}) });
      const chosen = { push: wanted, web: wanted, chosen_at: new Date().toISOString() };
      setTold((before) => ({ ...before, categories: before.categories.map((each) => (each.category === category ? { ...each, ...chosen } : each)) }));
    },
    [source, locale],
  );
  const hoursOf = told.quiet?.hours_of;
  const setQuiet = useCallback(
    async (windows: string[] | null) => {
      const all_phones = hoursOf !== "phone" && (await source.owner()) !== null;
      await source.setQuiet({ windows, ...(all_phones ? { all_phones } : {}) });
      const quiet = await source.quiet();
      setTold((before) => ({ ...before, quiet }));
    },
    [source, hoursOf],
  );
  useEffect(() => {
    if (active) void refresh();
  }, [active, refresh]);
  return { ...told, refresh, set, change, choose, setQuiet };
}
