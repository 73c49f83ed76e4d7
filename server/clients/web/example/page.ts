// A page whose users get pushes, tap them, and read what they missed.
import { RelevoPush } from "@relevo/web";

declare const api: { post(path: string, body: unknown): Promise<{ signature: string }> };
declare const user: { id: string } | null;
declare const page: { button: HTMLButtonElement; leave: HTMLButtonElement; list: HTMLUListElement; count: HTMLElement };

const push = new RelevoPush({
  url: "https://relay.example",
  publicKey: "BPd…",
  sign: async (browser) => (await api.post("/me/phone/sign", browser)).signature,
});
const inbox = push.inbox({ pageSize: 20 });

push.onChange(() => {
  page.button.hidden = push.state().on || push.state().permission !== "undetermined";
});
push.onTap(({ data }) => location.assign(String(data["url"] ?? "/")));
page.button.onclick = () => void push.switchOn();
page.leave.onclick = () => void push.logOut();

inbox.subscribe(() => {
  const { items, unread } = inbox.state();
  page.count.textContent = String(unread);
  page.list.replaceChildren(
    ...items.map((item) => {
      const row = document.createElement("li");
      row.textContent = item.title;
      row.onclick = () => void inbox.markRead(item.event_id);
      return row;
    }),
  );
});

await push.start(user?.id);
inbox.watch();
