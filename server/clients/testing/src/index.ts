/** What tests of all kits need: the Relevo that runs, its sandbox, and an app's server. */
import { randomUUID } from "node:crypto";
import { type KeyValue, RelevoClient, type SignedPhone } from "@relevo/client";
import { signInstallation } from "@relevo/client/sign";
import pg from "pg";

export const url = process.env["RELEVO_URL"] as string;
export const app = new RelevoClient({ url, token: process.env["RELEVO_APP_TOKEN"] as string });
export const database = new pg.Pool({ connectionString: process.env["DATABASE_URL"], max: 2 });

/** What the app's server does for whoever is logged in. */
export function sign(phone: SignedPhone): Promise<string> {
  return signInstallation(process.env["RELEVO_KEY_NAME"] as string, process.env["RELEVO_KEY"] as string, phone);
}

/** A name that no other test uses. */
export function fresh(what: string): string {
  return `${what}-${randomUUID()}`;
}

export function memory(): KeyValue & { kept: Map<string, string> } {
  const kept = new Map<string, string>();
  return {
    kept,
    get: async (name) => kept.get(name) ?? null,
    set: async (name, value) => {
      kept.set(name, value);
    },
  };
}

/** A network with its troubles: it may be away, and answers may be lost on their way back. */
export class Network {
  online = true;
  loseNext = 0;
  calls: string[] = [];

  readonly fetch: typeof fetch = async (input, init) => {
    const { pathname } = new URL(String(input));
    if (!this.online) throw new TypeError("Network request failed");
    const answer = await fetch(input, init);
    this.calls.push(`${init?.method} ${pathname.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/, "…")} ${answer.status}`);
    if (this.loseNext > 0) {
      this.loseNext -= 1;
      throw new TypeError("Network connection lost");
    }
    return answer;
  };
}

/** Look again and again until something true is seen. */
export async function eventually<T>(look: () => Promise<T> | T, what: string | (() => string) = "it did not happen"): Promise<T> {
  const deadline = Date.now() + 60_000;
  for (;;) {
    const seen = await look();
    if (seen) return seen;
    if (Date.now() > deadline) throw new Error(`not within a minute: ${typeof what === "string" ? what : what()}`);
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
}

export interface Message {
  title?: string;
  body?: string;
  data: Record<string, unknown>;
}

/** Return what a phone of the sandbox got. */
export async function received(token: string): Promise<Message[]> {
  const answer = await fetch(`${process.env["SANDBOX_URL"]}/sandbox/phones/${encodeURIComponent(token)}`);
  return answer.ok ? ((await answer.json()) as { messages: { message: Message }[] }).messages.map((each) => each.message) : [];
}

/** Push to an owner, and wait until nothing is left to send. */
export async function push(owner: string, title: string, type = "order.shipped"): Promise<number> {
  const { event_id } = await app.enqueue({ type, key: randomUUID(), title, audience: "owners", owners: [owner] });
  await eventually(async () => (await app.getEvent(event_id, { wait_ms: 10_000 }).catch(() => null))?.status !== "PENDING", `${title} was not sent`);
  return event_id;
}

/** Return an owner's phones, as the app's server sees them. */
export async function phonesOf(owner: string): Promise<{ installation_id: string; receives: boolean }[]> {
  const told = await app.http.send<{ url: string }, { items: { installation_id: string; receives: boolean }[] }>("GET", "/v1/installations", { query: { owner } });
  return told.items;
}
