// An app whose users read what they missed, and choose what they get.
import { RelevoProvider, useRelevo } from "@relevo/expo";
import { Bell, Preferences, RelevoScreens } from "@relevo/react/native";
import type { ReactElement } from "react";

declare const api: { post(path: string, body: unknown): Promise<{ signature: string }> };

export function App({ user }: { user: { id: string } }): ReactElement {
  return (
    <RelevoProvider url="https://relay.example" owner={user.id} sign={async (phone) => (await api.post("/me/phone/sign", phone)).signature}>
      <Screens />
    </RelevoProvider>
  );
}

function Screens(): ReactElement {
  return (
    <RelevoScreens push={useRelevo()} schemes={["myshop"]} colors={{ accent: "#7a1fa2" }}>
      <Bell />
      <Preferences />
    </RelevoScreens>
  );
}
