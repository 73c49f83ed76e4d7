import { useEffect, useMemo, useSyncExternalStore } from "react";
import { type InboxOptions, type InboxSource, type InboxState, InboxStore } from "./inbox.js";

export type UseInbox = InboxState & Pick<InboxStore, "refresh" | "loadMore" | "markRead" | "markUnread" | "markSeen" | "markAllRead" | "archive" | "unarchive">;

/** An inbox for a screen: read at once, kept up to date while `active`. */
export function useInboxOf(source: InboxSource, { active = true, status, category, type, pageSize }: InboxOptions & { active?: boolean } = {}): UseInbox {
  const store = useMemo(
    () => new InboxStore(source, { ...(status ? { status } : {}), ...(category ? { category } : {}), ...(type ? { type } : {}), ...(pageSize ? { pageSize } : {}) }),
    [source, status, category, type, pageSize],
  );
  const state = useSyncExternalStore(store.subscribe, store.state, store.state);
  useEffect(() => {
    return active ? store.watch() : undefined;
  }, [store, active]);
  const { refresh, loadMore, markRead, markUnread, markSeen, markAllRead, archive, unarchive } = store;
  return { ...state, refresh, loadMore, markRead, markUnread, markSeen, markAllRead, archive, unarchive };
}
