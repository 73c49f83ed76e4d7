// A page with a bell, and a page of settings.
import { Bell, Inbox, Preferences, RelevoScreens } from "@relevo/react";
import { RelevoPush } from "@relevo/web";
import { type ReactElement, useEffect } from "react";

declare const api: { post(path: string, body: unknown): Promise<{ signature: string }> };
declare const router: { push(path: string): void };

const push = new RelevoPush({
  url: "https://relay.example",
  publicKey: "BPd…",
  sign: async (browser) => (await api.post("/me/phone/sign", browser)).signature,
});

export function Page({ user }: { user: { id: string } }): ReactElement {
  useEffect(() => void push.start(user.id), [user.id]);
  return (
    <RelevoScreens key={user.id} push={push} locale="es" onOpen={(_, link) => link && router.push(link)}>
      <Bell />
      <Inbox />
      <Preferences topics={[{ topic: "football", name: "Fútbol" }]} />
    </RelevoScreens>
  );
}
