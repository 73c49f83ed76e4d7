// An app whose users get pushes, tap them, and read what they missed.
import { linkOf, RelevoProvider, useInbox, useRelevoPush } from "@relevo/expo";
import type { ReactElement, ReactNode } from "react";

declare const api: { post(path: string, body: unknown): Promise<{ signature: string }> };
declare const router: { open(url: unknown): void };
declare function Button(props: { title: string; onPress: () => void }): ReactNode;
declare function Row(props: { title: string; bold: boolean; onPress: () => void }): ReactNode;

export function App({ user }: { user: { id: string } | null }): ReactElement {
  return (
    <RelevoProvider url="https://relay.example" owner={user?.id} enabled={!!user} sign={async (phone) => (await api.post("/me/phone/sign", phone)).signature}>
      <Inbox />
    </RelevoProvider>
  );
}

function Inbox(): ReactElement {
  const push = useRelevoPush({ onTap: (response) => router.open(linkOf(response) ?? "/") });
  const inbox = useInbox({ badge: true });
  return (
    <>
      {push.permission === "undetermined" && <Button title="Tell me about my orders" onPress={() => void push.register("now")} />}
      {inbox.items.map((item) => (
        <Row key={item.event_id} title={item.title} bold={item.read_at === null} onPress={() => void inbox.markRead(item.event_id)} />
      ))}
      {inbox.hasMore && <Button title="More" onPress={() => void inbox.loadMore()} />}
    </>
  );
}
