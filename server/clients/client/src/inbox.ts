import type { InboxCountsOut, InboxItemOut, InboxOut } from "./generated/index.js";
import type { InboxQuery, Mark } from "./client.js";

/** Where an inbox is read and marked: a Device, or something of your own. */
export interface InboxSource {
  list(query: InboxQuery, signal?: AbortSignal): Promise<InboxOut>;
  counts(): Promise<InboxCountsOut>;
  /** Marks may be kept and sent later; they throw only if they never can be. */
  mark(eventId: number, mark: Mark): Promise<void>;
  markBefore(mark: "read" | "seen"): Promise<void>;
}

export interface InboxState {
  items: readonly InboxItemOut[];
  unread: number | "99+";
  unseen: number | "99+";
  hasMore: boolean;
  loading: boolean;
  error: unknown;
}

export interface InboxOptions {
  status?: NonNullable<InboxQuery["status"]>;
  category?: string;
  type?: string;
  pageSize?: number;
  /** The language of texts that their type renders, such as es-CL; that of the owner's newest phone unless said. */
  locale?: string;
}

const WAIT_MS = 25_000;
const LONGEST_PAUSE_MS = 60_000;
const EMPTY: InboxState = { items: [], unread: 0, unseen: 0, hasMore: false, loading: false, error: null };

/** An inbox as a screen shows it: pages, counts, marks that show at once, and what is new while somebody looks. */
export class InboxStore {
  readonly #source: InboxSource;
  readonly #options: InboxOptions;
  readonly #listeners = new Set<() => void>();
  #state: InboxState = EMPTY;
  #next: string | null = null;
  #newest: string | null = null;
  #watching: AbortController | null = null;

  constructor(source: InboxSource, options: InboxOptions = {}) {
    this.#source = source;
    this.#options = options;
  }

  readonly state = (): InboxState => this.#state;

  /** Hear of changes; the answer ends that. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  /** Read the first page and the counts. */
  readonly refresh = async (): Promise<void> => {
    await this.#load(async () => this.#show(await this.#source.list(this.#query())));
  };

  /** Read the next page. */
  readonly loadMore = async (): Promise<void> => {
    const before = this.#next;
    if (!before || this.#state.loading) return;
    await this.#load(async () => {
      const page = await this.#source.list({ ...this.#query(), before });
      this.#next = page.next;
      const known = new Set(this.#state.items.map((item) => item.event_id));
      const items = [...this.#state.items, ...page.items.filter((item) => !known.has(item.event_id))];
      this.#set({ items, hasMore: page.next !== null });
    });
  };

  readonly markRead = (eventId: number): Promise<void> => this.#mark(eventId, "read");
  readonly markUnread = (eventId: number): Promise<void> => this.#mark(eventId, "unread");
  readonly markSeen = (eventId: number): Promise<void> => this.#mark(eventId, "seen");
  readonly archive = (eventId: number): Promise<void> => this.#mark(eventId, "archive");
  readonly unarchive = (eventId: number): Promise<void> => this.#mark(eventId, "unarchive");

  /** Mark everything until now as read. */
  readonly markAllRead = async (): Promise<void> => {
    const before = this.#state;
    const at = new Date().toISOString();
    const items = before.items.map((item) => ({ ...item, seen_at: item.seen_at ?? at, read_at: item.read_at ?? at }));
    await this.#optimistically(before, { items, unread: 0, unseen: 0 }, () => this.#source.markBefore("read"));
  };

  /** Read the first page, and show what is new as it comes, by requests that wait; the answer ends that. */
  readonly watch = (): (() => void) => {
    const watching = new AbortController();
    this.#newest = null;
    this.#watching?.abort();
    this.#watching = watching;
    void this.#keepWatching(watching.signal);
    return () => watching.abort();
  };

  async #keepWatching(signal: AbortSignal): Promise<void> {
    let failed = 0;
    while (!signal.aborted) {
      try {
        if (this.#newest === null) {
          await this.refresh();
          if (this.#newest === null) throw this.#state.error;
        }
        const page = await this.#source.list({ ...this.#query(), after: this.#newest, wait_ms: WAIT_MS }, signal);
        if (!signal.aborted && page.newest !== this.#newest) await this.#load(() => this.#show(this.#withTail(page)));
        failed = 0;
      } catch {
        failed += 1;
        await sleep(Math.min(1000 * 2 ** (failed - 1), LONGEST_PAUSE_MS), signal);
      }
    }
  }

  async #show(page: InboxOut): Promise<void> {
    const counts = await this.#source.counts();
    this.#next = page.next;
    this.#newest = page.newest;
    this.#set({ items: page.items, hasMore: page.next !== null, ...counts });
  }

  /** Put the older pages that somebody loaded behind a new first page, if it reaches them. */
  #withTail(page: InboxOut): InboxOut {
    const last = page.items.at(-1)?.event_id;
    const place = this.#state.items.findIndex((item) => item.event_id === last);
    return place < 0 ? page : { ...page, items: [...page.items, ...this.#state.items.slice(place + 1)], next: this.#next };
  }

  async #load(work: () => Promise<void>): Promise<void> {
    this.#set({ loading: true });
    try {
      await work();
      this.#set({ loading: false, error: null });
    } catch (error) {
      this.#set({ loading: false, error });
    }
  }

  async #mark(eventId: number, mark: Mark): Promise<void> {
    const before = this.#state;
    const found = before.items.find((item) => item.event_id === eventId);
    const marked = found && apply(found, mark);
    const stays = mark !== "archive" || this.#options.status === "all";
    const items = before.items.flatMap((item) => (item.event_id !== eventId ? [item] : stays && marked ? [marked] : []));
    const change = found && marked ? { unread: count(before.unread, found, marked, "read_at"), unseen: count(before.unseen, found, marked, "seen_at") } : {};
    await this.#optimistically(before, { items, ...change }, () => this.#source.mark(eventId, mark));
  }

  /** Show a change at once, and take it back if it is refused. */
  async #optimistically(before: InboxState, change: Partial<InboxState>, work: () => Promise<void>): Promise<void> {
    this.#set(change);
    try {
      await work();
    } catch (error) {
      const { items, unread, unseen } = before;
      this.#set({ items, unread, unseen });
      throw error;
    }
  }

  #query(): InboxQuery {
    const { status, category, type, pageSize, locale } = this.#options;
    return { ...(status ? { status } : {}), ...(category ? { category } : {}), ...(type ? { type } : {}), ...(locale ? { locale } : {}), limit: pageSize ?? 20 };
  }

  #set(change: Partial<InboxState>): void {
    this.#state = { ...this.#state, ...change };
    for (const listener of this.#listeners) listener();
  }
}

function apply(item: InboxItemOut, mark: Mark): InboxItemOut {
  const at = new Date().toISOString();
  const changes: Record<Mark, Partial<InboxItemOut>> = {
    read: { read_at: item.read_at ?? at, seen_at: item.seen_at ?? at },
    unread: { read_at: null },
    seen: { seen_at: item.seen_at ?? at },
    unseen: { seen_at: null, read_at: null },
    archive: { archived_at: item.archived_at ?? at },
    unarchive: { archived_at: null },
  };
  return { ...item, ...changes[mark] };
}

function count(total: number | "99+", was: InboxItemOut, is: InboxItemOut, field: "read_at" | "seen_at"): number | "99+" {
  if (total === "99+") return total;
  const counts = (item: InboxItemOut): number => (item[field] === null && item.archived_at === null ? 1 : 0);
  return Math.max(0, total + counts(is) - counts(was));
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const go = (): void => {
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(go, ms);
    signal.addEventListener("abort", go, { once: true });
  });
}
