// A page with the screens that are asked for: ?screens=bell,inbox,preferences&owner=ana&locale=es&theme=dark.
import { signInstallation } from "@relevo/client/sign";
import { Bell, Inbox, Preferences, RelevoScreens, type RelevoScreensProps } from "@relevo/react";
import { RelevoPush } from "@relevo/web";
import { createRoot } from "react-dom/client";

interface Settings {
  url: string;
  keyName: string;
  key: string;
}

const { url, keyName, key } = (await (await fetch("/settings.json")).json()) as Settings;
const asked = new URLSearchParams(location.search);
const screens = (asked.get("screens") ?? "bell,inbox,preferences").split(",");
const push = new RelevoPush({ url, publicKey: "none", sign: (phone) => signInstallation(keyName, key, phone) });
const opened: unknown[] = [];
const theme = asked.get("theme") as RelevoScreensProps["theme"];
const topics = [
  { topic: "football", name: "Football", sentence: "Results on Sunday." },
  { topic: "chess", name: "Chess" },
];

createRoot(document.querySelector("main > div") as HTMLElement).render(
  <RelevoScreens push={push} locale={asked.get("locale") ?? "en"} schemes={["myshop"]} {...(theme ? { theme } : {})} {...(asked.has("opens") ? { onOpen: (item, link) => opened.push([item.title, link]) } : {})}>
    <p>
      <a href="#before">Before</a> {screens.includes("bell") && <Bell />} <a href="#after">After</a>
    </p>
    {screens.includes("inbox") && <Inbox />}
    {screens.includes("preferences") && <Preferences topics={topics} />}
  </RelevoScreens>,
);
Object.assign(window, { push, opened });
if (!asked.has("logged-out")) await push.start(asked.get("owner") ?? "ana");
