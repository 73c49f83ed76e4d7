// The app's server: it signs for the phone of whoever is logged in, and tells people things.
import { RelevoClient, type SignedPhone } from "@relevo/client";
import { signInstallation } from "@relevo/client/sign";

const relevo = new RelevoClient({ url: "https://relay.example", token: process.env["RELEVO_TOKEN"] ?? "" });

export function signPhone(user: { id: string }, phone: SignedPhone): Promise<string> {
  return signInstallation("2026-11", process.env["RELEVO_KEY"] ?? "", { ...phone, owner: user.id });
}

export async function tell(user: { id: string }, order: number): Promise<void> {
  await relevo.enqueue({ type: "order.shipped", key: `order-${order}`, title: "On its way", audience: "owners", owners: [user.id] });
}

export async function unread(user: { id: string }): Promise<number | "99+"> {
  return (await relevo.inboxCounts({ owner: user.id })).unread;
}
