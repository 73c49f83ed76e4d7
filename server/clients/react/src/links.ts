import type { InboxItemOut } from "@relevo/client";

const ALWAYS = ["http", "https"];

/** The link of an item (`data.url`), if it is relative or its scheme is http, https or one of the app's; else null. */
export function linkOf({ data }: Pick<InboxItemOut, "data">, schemes: readonly string[] = []): string | null {
  const link = data["url"];
  if (typeof link !== "string" || !link.trim()) return null;
  // Browsers ignore control characters and blanks in a scheme, so they hide no scheme here.
  // eslint-disable-next-line no-control-regex
  const scheme = /^([a-z][a-z0-9+.-]*):/i.exec(link.replace(/[\u0000-\u0020\u007f-\u00a0\u2028\u2029\ufeff]/g, ""))?.[1]?.toLowerCase();
  const allowed = scheme === undefined || [...ALWAYS, ...schemes.map((each) => each.toLowerCase())].includes(scheme);
  return allowed ? link.trim() : null;
}
