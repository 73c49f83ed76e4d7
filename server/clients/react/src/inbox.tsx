import type { InboxItemOut } from "@relevo/client";
import { type MouseEvent, type ReactNode, useEffect, useId, useRef, useState } from "react";
import { linkOf } from "./links.js";
import { phaseOf, timeOf, useScreens, useScreensInbox } from "./screens.js";

/** What came for a person, newest first: read, mark, archive, load more. */
export function Inbox(): ReactNode {
  const { texts, theme, status, push } = useScreens();
  const inbox = useScreensInbox();
  const title = useId();
  const list = useRef<HTMLUListElement>(null);
  const [notSaved, setNotSaved] = useState(false);
  const [from, setFrom] = useState<number | null>(null);
  const { items, error, loading, hasMore, unread } = inbox;
  const phase = phaseOf(status, inbox, items.length > 0);
  const failed = phase === "failed" || (phase === "ready" && error !== null);
  useEffect(() => {
    const added = from === null || items.length <= from ? null : list.current?.children[from];
    if (!added) return;
    added.querySelector<HTMLElement>("a, button")?.focus(); // the button that loaded it may be gone
    setFrom(null);
  }, [items.length, from]);
  const mark = async (work: () => Promise<void>): Promise<void> => {
    setNotSaved(false);
    await work().catch(() => setNotSaved(true));
  };
  const retry = (): void => {
    list.current?.parentElement?.focus();
    if (status !== "registered") void push.register();
    else void (items.length ? inbox.loadMore() : inbox.refresh());
  };
  return (
    <div role="group" className="relevo relevo-inbox" data-theme={theme} aria-labelledby={title} tabIndex={-1}>
      <header>
        <h2 id={title}>{texts.notifications}</h2>
        {items.length > 0 && (
          <button type="button" aria-disabled={unread === 0} onClick={() => unread !== 0 && void mark(inbox.markAllRead)}>
            {texts.markAllRead}
          </button>
        )}
      </header>
      <p role="status" className="relevo-state">
        {phase === "loading" ? texts.loading : phase === "logged-out" ? texts.loggedOut : phase === "ready" && items.length === 0 ? texts.empty : ""}
      </p>
      <div role="alert">{notSaved ? texts.notSaved : failed ? texts.failed : ""}</div>
      <ul ref={list} aria-labelledby={title} aria-busy={loading} hidden={phase !== "ready" || items.length === 0}>
        {phase === "ready" && items.map((item) => <Item key={item.event_id} item={item} mark={mark} inbox={inbox} />)}
      </ul>
      {failed && (
        <button type="button" className="relevo-wide" onClick={retry}>
          {texts.retry}
        </button>
      )}
      {phase === "ready" && hasMore && !failed && (
        <button
          type="button"
          className="relevo-wide"
          aria-disabled={loading}
          onClick={() => {
            if (loading) return;
            setFrom(items.length);
            void inbox.loadMore();
          }}
        >
          {texts.loadMore}
        </button>
      )}
    </div>
  );
}

interface ItemProps {
  item: InboxItemOut;
  inbox: ReturnType<typeof useScreensInbox>;
  mark: (work: () => Promise<void>) => Promise<void>;
}

function Item({ item, inbox, mark }: ItemProps): ReactNode {
  const { texts, locale, schemes, onOpen } = useScreens();
  const id = useId();
  const link = linkOf(item, schemes);
  const isUnread = item.read_at === null;
  const open = (event: MouseEvent): void => {
    if (isUnread) void mark(() => inbox.markRead(item.event_id));
    if (!onOpen || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    onOpen(item, link);
  };
  const archive = (event: MouseEvent<HTMLElement>): void => {
    const row = event.currentTarget.closest("li");
    const next = (row?.nextElementSibling ?? row?.previousElementSibling)?.querySelector<HTMLElement>("a, button");
    (next ?? row?.closest<HTMLElement>(".relevo-inbox"))?.focus(); // this button goes with its item
    void mark(() => inbox.archive(item.event_id));
  };
  return (
    <li className="relevo-item" data-unread={isUnread || undefined}>
      <p className="relevo-title" id={id}>
        {isUnread && <span className="relevo-hidden">{texts.unread}: </span>}
        {link ? (
          <a href={link} onClick={open}>
            {item.title}
          </a>
        ) : onOpen ? (
          <button type="button" className="relevo-link" onClick={open}>
            {item.title}
          </button>
        ) : (
          item.title
        )}
      </p>
      {item.body && <p className="relevo-body">{item.body}</p>}
      <footer>
        <time dateTime={item.at}>{timeOf(item.at, locale)}</time>
        <button type="button" aria-describedby={id} onClick={() => void mark(() => (isUnread ? inbox.markRead : inbox.markUnread)(item.event_id))}>
          {isUnread ? texts.markRead : texts.markUnread}
        </button>
        <button type="button" aria-describedby={id} onClick={archive}>
          {texts.archive}
        </button>
      </footer>
    </li>
  );
}
