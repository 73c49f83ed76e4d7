import { type FocusEvent, type KeyboardEvent, type ReactNode, useEffect, useId, useRef, useState } from "react";
import { Inbox } from "./inbox.js";
import { useScreens, useScreensInbox } from "./screens.js";
import { fill } from "./texts.js";

export interface BellProps {
  /** At which side of the bell the inbox is flush: `end` unless said. */
  align?: "start" | "end";
}

/** A button with the number of unread items, which opens the inbox below it. */
export function Bell({ align = "end" }: BellProps): ReactNode {
  const { texts, theme } = useScreens();
  const { unread } = useScreensInbox();
  const [open, setOpen] = useState(false);
  const id = useId();
  const whole = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const popover = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return undefined;
    popover.current?.focus();
    const pressed = (event: PointerEvent): void => {
      if (!whole.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", pressed);
    return () => document.removeEventListener("pointerdown", pressed);
  }, [open]);
  const close = (): void => {
    setOpen(false);
    button.current?.focus();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (!open || event.key !== "Escape") return;
    event.stopPropagation();
    close();
  };
  const onBlur = ({ relatedTarget }: FocusEvent): void => {
    if (relatedTarget && !whole.current?.contains(relatedTarget)) setOpen(false);
  };
  const label = unread === 0 ? texts.noneUnread : unread === 1 ? texts.oneUnread : fill(texts.manyUnread, { count: unread });
  return (
    <div className="relevo relevo-bell" data-theme={theme} ref={whole} onKeyDown={onKeyDown} onBlur={onBlur}>
      <button ref={button} type="button" className="relevo-icon" aria-label={label} aria-haspopup="dialog" aria-expanded={open} aria-controls={open ? id : undefined} onClick={() => (open ? close() : setOpen(true))}>
        <svg viewBox="0 0 24 24" width="24" height="24" fill="none" stroke="currentColor" strokeWidth="2" strokeLinecap="round" strokeLinejoin="round" aria-hidden="true">
          <path d="M6 9a6 6 0 0 1 12 0c0 6 2 7 2 8H4c0-1 2-2 2-8M10 21h4" />
        </svg>
        {unread !== 0 && (
          <span className="relevo-count" aria-hidden="true">
            {unread === "99+" ? unread : String(unread)}
          </span>
        )}
      </button>
      <span role="status" className="relevo-hidden">
        {unread === 0 ? "" : label}
      </span>
      {open && (
        <div ref={popover} id={id} role="dialog" aria-label={texts.notifications} className="relevo-popover" data-align={align} tabIndex={-1}>
          <Inbox />
          <button type="button" className="relevo-wide" onClick={close}>
            {texts.close}
          </button>
        </div>
      )}
    </div>
  );
}
