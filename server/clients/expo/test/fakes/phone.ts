/** The phone that the fakes stand for: what the person did to it, and what the app did. */
import type { Notification, NotificationResponse } from "expo-notifications";

type Listener = (event: any) => void;

export class FakePhone {
  os: "ios" | "android" = "ios";
  permission: "granted" | "denied" | "undetermined" = "granted";
  token = "";
  online = true;
  last: NotificationResponse | null = null;
  kept = new Map<string, string>();
  badge: number | null = null;
  channels: string[] = [];
  /** What the app's entitlement says; null on a simulator. */
  build: "development" | "production" | null = "production";
  categories = new Map<string, { identifier: string; buttonTitle: string }[]>();
  asked = 0;
  unregistered = 0;
  listeners = { response: new Set<Listener>(), received: new Set<Listener>(), token: new Set<Listener>(), state: new Set<Listener>() };

  listen(kind: keyof FakePhone["listeners"], listener: Listener): { remove(): void } {
    this.listeners[kind].add(listener);
    return { remove: () => this.listeners[kind].delete(listener) };
  }

  tell(kind: keyof FakePhone["listeners"], event: unknown): void {
    for (const listener of this.listeners[kind]) listener(event);
  }
}

export let phone = new FakePhone();

/** Take another phone into the hand. */
export function newPhone(token: string): FakePhone {
  phone = new FakePhone();
  phone.token = token;
  return phone;
}

/** A push as it lies on the screen. */
export function shown(message: { title?: string; body?: string; data: Record<string, unknown> }): Notification {
  const content = { title: message.title ?? null, body: message.body ?? null, data: message.data };
  return { date: Date.now(), request: { identifier: "1", content, trigger: null } };
}
