// Writes the page of stories: node stories.js STYLES PAGE. The screens are rendered as they are for people, then written down without scripts.
import { readFileSync, writeFileSync } from "node:fs";
import type { CategoryBody, InboxItemOut } from "@relevo/client";
import { Bell, Inbox, Preferences, RelevoScreens, type ScreensPush } from "@relevo/react";
import { createElement, type ReactElement, type ReactNode } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { act, create, type ReactTestRendererJSON } from "react-test-renderer";

type Written = ReactTestRendererJSON | string | null;
type Device = ScreensPush["device"];

process.env["TZ"] = "UTC";
const nothing = (): undefined => undefined;
const never = (): Promise<never> => new Promise(() => undefined);
const page = { addEventListener: nothing, removeEventListener: nothing };
Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true, document: page });

const WORDS = {
  en: { items: [["Order 53 is on its way", "It arrives tomorrow between 9 and 12."], ["Half price on Monday", ""], ["Welcome", "Thank you for signing up."]], offers: ["Offers", "Discounts, at most once a week."], alarms: ["Security", "Logins and changes of your account."], chess: "Chess" },
  es: { items: [["El pedido 53 va en camino", "Llega mañana entre las 9 y las 12."], ["A mitad de precio el lunes", ""], ["Te damos la bienvenida", "Gracias por registrarte."]], offers: ["Ofertas", "Descuentos, a lo más una vez por semana."], alarms: ["Seguridad", "Inicios de sesión y cambios de tu cuenta."], chess: "Ajedrez" },
} as const;
type Locale = keyof typeof WORDS;

function device(locale: Locale, some: boolean): Device {
  const told = WORDS[locale];
  const items = told.items.map(([title = "", body = ""], place): InboxItemOut => {
    const at = `2026-11-1${7 - place}T09:00:00Z`;
    const data = place < 2 ? { url: "#light-en" } : {};
    return { event_id: place, type: "story", category: null, title, body, data, at, seen_at: at, read_at: place ? at : null, archived_at: null, cursor: String(place) };
  });
  const category = (name: string, rule: CategoryBody["rule"], [title, sentence]: readonly [string, string]): CategoryBody => ({ category: name, name: title, sentence, rule, push: true, web: true, chosen_at: null, quiet: null });
  return {
    list: (query) => (query.wait_ms ? never() : Promise.resolve({ items: some ? items : [], next: some ? "3" : null, newest: "0" })),
    counts: async () => ({ unread: some ? 1 : 0, unseen: 0 }),
    mark: never,
    markBefore: never,
    owner: async () => "user-7",
    preferences: async () => [{ name: "default", delivery: "weekly mon 08:00", updated_at: "" }, { name: "topics", topics: ["chess"], delivery: "weekly mon 08:00", updated_at: "" }],
    setPreference: never,
    changePreference: never,
    categories: async () => [category("offers", "off", told.offers), category("alarms", "mandatory", told.alarms)],
    choose: never,
    quiet: async () => ({ windows: ["22:00-07:00", "sat,sun 07:00-10:00"], zone: "America/Santiago", hours_of: "owner", zone_of: "phone", quiet_until: null }),
    setQuiet: never,
  };
}

function story(locale: Locale, theme: "light" | "dark", status: ReturnType<ScreensPush["state"]>["status"], some: boolean, screens: ReactNode): ReactElement {
  const state = { status };
  const push: ScreensPush = { device: device(locale, some), state: () => state, subscribe: () => nothing, register: never };
  return (
    <article lang={locale} data-theme={theme}>
      <RelevoScreens push={push} locale={locale} theme={theme}>
        {screens}
      </RelevoScreens>
    </article>
  );
}

const SAID = { en: "English", es: "Español" };
const looks = (["light", "dark"] as const).flatMap((theme) => (["en", "es"] as const).map((locale) => ({ theme, locale })));
let made!: ReturnType<typeof create>;
await act(async () => {
  made = create(
    <>
      {looks.map(({ theme, locale }) => (
        <section key={theme + locale} className={theme} id={`${theme}-${locale}`}>
          <h2>
            {SAID[locale]}, {theme}
          </h2>
          {story(locale, theme, "registered", true, <Bell align="start" />)}
          {story(locale, theme, "registered", true, <Inbox />)}
          {story(locale, theme, "registered", false, <Inbox />)}
          {story(locale, theme, "registering", false, <Inbox />)}
          {story(locale, theme, "offline", false, <Inbox />)}
          {story(locale, theme, "registered", true, <Preferences topics={[{ topic: "chess", name: WORDS[locale].chess }]} />)}
        </section>
      ))}
    </>,
  );
});
for (const bell of made.root.findAllByType(Bell)) await act(async () => bell.findByProps({ "aria-haspopup": "dialog" }).props["onClick"]());

function asElement(written: Written): ReactNode {
  if (written === null || typeof written === "string") return written;
  return createElement(written.type, { ...written.props, readOnly: written.type === "input" || undefined }, ...(written.children ?? []).map(asElement));
}

const [, , styles = "", out = ""] = process.argv;
const OWN = `body { margin: 0; overflow-wrap: anywhere; font-family: system-ui, sans-serif; }
h1 { margin: 1rem; }
main > section { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(24rem, 100%), 1fr)); gap: 1rem; align-items: start; padding: 1rem; background: #ffffff; color: #1b1f24; }
main > section.dark { background: #14181d; color: #e8ebef; }
main > section > h2 { grid-column: 1 / -1; margin: 0; }
article { min-width: 0; }
article { position: relative; }
article:has(.relevo-popover) { min-height: 42rem; }
article > .relevo-bell { position: static; }
.relevo-popover.relevo-popover[data-align] { position: absolute; inset-inline: 0; width: auto; }`;
const written = made.toJSON() as unknown as Written[];
const body = renderToStaticMarkup(createElement("body", {}, createElement("main", {}, createElement("h1", {}, "The screens of @relevo/react"), ...written.map(asElement))));
const head = `<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>The screens of @relevo/react</title>\n<style>\n${readFileSync(styles, "utf8")}${OWN}\n</style>\n`;
// Times have blanks that differ between versions of Node.js.
writeFileSync(out, `${head}${body.replace(/><(?!\/)/g, ">\n<").replaceAll("\u202f", " ")}\n</html>\n`);
process.exit(0);
