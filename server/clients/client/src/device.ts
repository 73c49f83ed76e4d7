import type { Attributes, AttributesIn, Mark, RelevoClient } from "./client.js";
import { isTemporary, RelevoError } from "./errors.js";
import type { CategoryBody, Hours, InboxCountsOut, InboxOut, InstallationBody, NamedPreference, PhoneChoiceIn, PhoneHoursIn, PreferenceBody } from "./generated/index.js";
import type { InboxSource } from "./inbox.js";
import type { PreferenceChange, PreferencesSource } from "./preferences.js";
import type { SignedPhone } from "./sign.js";

/** Where a phone keeps what it must not lose: its id, its secret, and what could not be sent yet. */
export interface KeyValue {
  get(name: string): Promise<string | null>;
  set(name: string, value: string): Promise<void>;
  /** Where several pages share it: read, change and write in one step. */
  change?(name: string, work: (before: string | null) => string): Promise<void>;
  /** Where several pages share it: do one work after another, whichever page it is of. */
  inTurn?<T>(work: () => Promise<T>): Promise<T>;
}

/** What the phone says of itself. */
export type Phone = Omit<InstallationBody, "owner" | "project" | "renew_secret">;

/** Ask the app's own server for a signature: it signs exactly this, for the user who is logged in there. */
export type Sign = (phone: SignedPhone) => Promise<string>;

export interface DeviceOptions {
  client: RelevoClient;
  storage: KeyValue;
  /** `default` unless said. */
  project?: string;
  /** Needed unless the project is open for registration. */
  sign?: Sign;
  now?: () => number;
}

export interface Tap {
  deliveryId: number;
  /** The button; left out for a tap on the push itself. */
  action?: string;
  /** Whether the push asks to hear of it. */
  report?: boolean;
  /** When, in milliseconds; now unless said. */
  at?: number;
}

/** Read from a push's data what a tap on it is; null if it is none of Relevo's. FCM makes texts of numbers. */
export function tapOf(data: unknown, action?: string): Tap | null {
  const told = (data ?? {}) as { notificationDeliveryId?: unknown; reportOpened?: unknown };
  const deliveryId = Number(told.notificationDeliveryId);
  if (!Number.isSafeInteger(deliveryId) || deliveryId < 1) return null;
  const report = told.reportOpened === true || told.reportOpened === "true";
  return { deliveryId, report, ...(action ? { action } : {}) };
}

interface Kept {
  id: string;
  secret: string | null;
  owner: string | null;
  /** What was registered last, in short, and when. */
  sent: string | null;
  sentAt: number;
  /** Secrets whose log-out has not been heard by Relevo. */
  leaving: string[];
}

type Waiting =
  | { kind: "opened"; at: number; deliveryId: number; action?: string }
  | { kind: "mark"; at: number; eventId: number; mark: Mark }
  | { kind: "before"; at: number; mark: "read" | "seen" };

const DAY_MS = 86_400_000;
const REFRESH_MS = 30 * DAY_MS; // FCM counts a token as stale that was not renewed for a month
const KEPT_MS = 7 * DAY_MS;
const MOST_WAITING = 50;
const MOST_KNOWN_TAPS = 100;
const SIGNINGS = 3;
const LOG_OUT_MS = 5_000;

/** One app on one phone, as Relevo knows it. What could not be sent is kept, and sent before anything else. */
export class Device implements InboxSource, PreferencesSource {
  readonly #options: DeviceOptions;
  #confirmed = false;
  /** Whom this one registered for: another page may have logged in somebody else since then. */
  #registeredFor: string | null | undefined;
  #turn: Promise<unknown> = Promise.resolve();
  #write: Promise<unknown> = Promise.resolve();

  constructor(options: DeviceOptions) {
    this.#options = options;
  }

  /** The installation's id, made once for this phone. */
  async installationId(): Promise<string> {
    return (await this.#load()).id;
  }

  /** Whose phone it is, as far as Relevo was told. */
  async owner(): Promise<string | null> {
    return (await this.#load()).owner;
  }

  /** Whether it is registered, and may read inbox and preferences. */
  async isRegistered(): Promise<boolean> {
    return (await this.#load()).secret !== null;
  }

  /** Register this phone, or refresh it where something changed; nothing is sent where nothing did. */
  register(phone: Phone, owner?: string): Promise<void> {
    return this.#inTurn(async () => {
      const kept = await this.#load();
      this.#registeredFor = owner ?? null;
      await this.#leave(kept);
      const body: InstallationBody = { ...phone, ...(this.#options.project ? { project: this.#options.project } : {}), ...(owner ? { owner } : {}) };
      const written = digest(JSON.stringify(body));
      const now = this.#now();
      if (this.#confirmed && kept.secret && kept.sent === written && now - kept.sentAt < REFRESH_MS) return;
      const secret = (await this.#refresh(kept, body)) ?? (await this.#registerAnew(kept, body));
      Object.assign(kept, { secret, owner: owner ?? null, sent: written, sentAt: now });
      this.#confirmed = true;
      await this.#save(kept);
      await this.#flush(kept);
    });
  }

  /** Log out: at once if there is a network, else as soon as there is one, before anything else. Tell which. */
  logOut(): Promise<"done" | "later"> {
    return this.#inTurn(async () => {
      const kept = await this.#load();
      const left = { id: kept.id, secret: kept.secret, queue: [] as Waiting[] };
      if (kept.secret) kept.leaving.push(kept.secret);
      Object.assign(kept, { secret: null, owner: null, sent: null });
      this.#confirmed = false;
      await this.#save(kept);
      await this.#change<Waiting[]>("queue", (queue) => {
        left.queue = queue ?? [];
        return [];
      });
      const patience = new AbortController();
      const timer = setTimeout(() => patience.abort(), LOG_OUT_MS);
      try {
        if (left.secret) for (const waiting of left.queue) await this.#sendIfTaken(left.id, left.secret, waiting, patience.signal);
        await this.#leave(kept, patience.signal);
        return "done";
      } catch (error) {
        if (!isTemporary(error)) throw error;
        return "later";
      } finally {
        clearTimeout(timer);
      }
    });
  }

  /** Note a tap, once for each push; if its event asks for that, report it as soon as there is a network. Tell whether it is new. */
  async opened({ report, at = this.#now(), ...tap }: Tap): Promise<boolean> {
    const kept = await this.#load();
    let isNew = false;
    await this.#change<number[]>("taps", (before) => {
      const taps = before ?? [];
      isNew = !taps.includes(tap.deliveryId);
      return isNew ? [...taps, tap.deliveryId].slice(-MOST_KNOWN_TAPS) : taps;
    });
    if (!isNew) return false;
    if (report && kept.secret) {
      await this.#add({ kind: "opened", at, ...tap });
      void this.flush().catch(() => undefined); // the screen that the tap leads to does not wait for it
    }
    return true;
  }

  /** Send what is kept; what cannot be sent stays for the next time. */
  flush(): Promise<void> {
    return this.#inTurn(async () => {
      const kept = await this.#load();
      try {
        await this.#leave(kept);
      } catch (error) {
        if (!isTemporary(error)) throw error;
        return;
      }
      await this.#flush(kept);
    });
  }

  /** The attributes that this phone says of itself: those that begin with `device.`. */
  async attributes(): Promise<Attributes> {
    const { id, secret } = await this.#registered();
    return this.#options.client.getAttributes({ installation_id: id }, { secret });
  }

  /** Say something of this phone, such as `{"device.theme": "dark"}`: what is left out stays, and null removes it. */
  async setAttributes(attributes: AttributesIn): Promise<void> {
    const { id, secret } = await this.#registered();
    await this.#options.client.setAttributes({ installation_id: id }, attributes, { secret });
  }

  async preferences(): Promise<NamedPreference[]> {
    const { id, secret } = await this.#registered();
    return this.#options.client.preferences(id, { secret });
  }

  async setPreference(name: string, preference: PreferenceBody | null): Promise<void> {
    const { id, secret } = await this.#registered();
    await this.#options.client.setPreference(id, name, preference, { secret });
  }

  /** Change fields of a preference; the others stay as they are. A preference that does not exist yet is made. */
  changePreference(name: string, change: PreferenceChange): Promise<NamedPreference> {
    return this.#inTurn(async () => {
      const { id, secret } = await this.#registered();
      const { client } = this.#options;
      const found = (await client.preferences(id, { secret })).find((each) => each.name === name);
      const { name: _, updated_at: __, ...fields } = found ?? ({} as NamedPreference);
      return client.setPreference(id, name, { ...fields, ...(typeof change === "function" ? change(found) : change) }, { secret });
    });
  }

  /** The quiet hours that hold for this phone: its own, its owner's or its project's. */
  async quiet(): Promise<Hours> {
    const { id, secret } = await this.#registered();
    return this.#options.client.quiet(id, { secret });
  }

  /** Set the quiet hours of this phone, or with `all_phones` those of its owner; windows or zone that are left out stay. */
  async setQuiet(hours: PhoneHoursIn): Promise<void> {
    const { id, secret } = await this.#registered();
    await this.#options.client.setQuiet(id, hours, { secret });
  }

  /** The categories of pushes in a language, and what this phone's owner chose of them. */
  async categories(locale?: string): Promise<CategoryBody[]> {
    const { id, secret } = await this.#registered();
    return this.#options.client.categories(id, locale, { secret });
  }

  /** Choose a category, or refuse it, on all phones of this phone's owner; `words` are those that were shown. */
  async choose(category: string, choice: PhoneChoiceIn): Promise<void> {
    const { id, secret } = await this.#registered();
    await this.#options.client.choose(id, category, choice, { secret });
  }

  async list(query: Parameters<InboxSource["list"]>[0], signal?: AbortSignal): Promise<InboxOut> {
    const { secret } = await this.#registered();
    return this.#options.client.inbox(query, { secret, ...(signal ? { signal } : {}) });
  }

  async counts(): Promise<InboxCountsOut> {
    const { secret } = await this.#registered();
    return this.#options.client.inboxCounts({}, { secret });
  }

  async mark(eventId: number, mark: Parameters<InboxSource["mark"]>[1]): Promise<void> {
    await this.#later({ kind: "mark", at: this.#now(), eventId, mark });
  }

  async markBefore(mark: "read" | "seen"): Promise<void> {
    await this.#later({ kind: "before", at: this.#now(), mark });
  }

  async #later(waiting: Waiting): Promise<void> {
    await this.#registered();
    await this.#add(waiting);
    await this.flush();
  }

  /** Renew with the phone's own secret; null if that is not enough: it ended, or the owner or the token is another's. */
  async #refresh(kept: Kept, body: InstallationBody): Promise<string | null> {
    if (!kept.secret || kept.owner !== (body.owner ?? null)) return null;
    try {
      const told = await this.#options.client.register({ ...body, installation_id: kept.id }, { secret: kept.secret });
      return told.secret ?? kept.secret;
    } catch (error) {
      if (error instanceof RelevoError && [401, 403].includes(error.status)) return null;
      throw error;
    }
  }

  /** Register with a new signature, and ask for a new secret: the answer that told the last one may have been lost. */
  async #registerAnew(kept: Kept, body: InstallationBody): Promise<string> {
    const { client, sign } = this.#options;
    if (!sign) return told(await client.register({ ...body, installation_id: kept.id }));
    for (let tried = 1; ; tried += 1) {
      const signature = await sign(signed(kept.id, body));
      try {
        return told(await client.register({ ...body, installation_id: kept.id, renew_secret: true }, { signature }));
      } catch (error) {
        if (!isTemporary(error) || tried >= SIGNINGS) throw error;
      }
    }
  }

  /** Send the log-outs that Relevo has not heard of; one that it no longer knows is done. */
  async #leave(kept: Kept, signal?: AbortSignal): Promise<void> {
    while (kept.leaving.length) {
      const secret = kept.leaving[0] as string;
      try {
        await this.#options.client.logOut(kept.id, { secret, ...(signal ? { signal } : {}) });
      } catch (error) {
        if (!(error instanceof RelevoError) || ![401, 403, 404].includes(error.status)) throw error;
      }
      kept.leaving = kept.leaving.filter((each) => each !== secret);
      await this.#save(kept);
    }
  }

  async #add(waiting: Waiting): Promise<void> {
    await this.#change<Waiting[]>("queue", (queue) => [...(queue ?? []), waiting].slice(-MOST_WAITING));
  }

  async #flush(kept: Kept): Promise<void> {
    for (;;) {
      const [first] = (await this.#read<Waiting[]>("queue")) ?? [];
      if (!kept.secret || !first) return;
      try {
        await this.#send(kept.id, kept.secret, first);
      } catch (error) {
        if (isTemporary(error)) return;
        if (error instanceof RelevoError && error.status === 401) return; // registering anew comes first
      }
      const sent = JSON.stringify(first);
      await this.#change<Waiting[]>("queue", (queue) => (queue ?? []).filter((each) => JSON.stringify(each) !== sent));
    }
  }

  /** Send what waited; what Relevo refuses is dropped, and keeps no log-out. */
  async #sendIfTaken(id: string, secret: string, waiting: Waiting, signal: AbortSignal): Promise<void> {
    try {
      await this.#send(id, secret, waiting, signal);
    } catch (error) {
      if (isTemporary(error)) throw error;
    }
  }

  async #send(id: string, secret: string, waiting: Waiting, signal?: AbortSignal): Promise<void> {
    if (waiting.at < this.#now() - KEPT_MS) return;
    const { client } = this.#options;
    const as = { secret, ...(signal ? { signal } : {}) };
    const at = new Date(waiting.at).toISOString();
    if (waiting.kind === "opened") {
      const action = waiting.action ? { action: waiting.action } : {};
      await client.opened(id, { delivery_id: waiting.deliveryId, at, ...action }, as);
    } else if (waiting.kind === "mark") {
      await client.markInbox(waiting.eventId, waiting.mark, {}, as);
    } else {
      await client.markInboxBefore(waiting.mark, at, {}, as);
    }
  }

  async #registered(): Promise<Kept & { secret: string }> {
    const kept = await this.#load();
    const isAnothers = this.#registeredFor !== undefined && this.#registeredFor !== kept.owner;
    if (!kept.secret || isAnothers) throw new NotRegisteredError();
    return kept as Kept & { secret: string };
  }

  async #load(): Promise<Kept> {
    let found!: Kept;
    await this.#change<Kept>("device", (kept) => {
      found = kept ?? { id: uuid(), secret: null, owner: null, sent: null, sentAt: 0, leaving: [] };
      return found;
    });
    return found;
  }

  #save(kept: Kept): Promise<void> {
    return this.#change<Kept>("device", () => kept);
  }

  async #read<T>(name: string): Promise<T | null> {
    return parse<T>(await this.#options.storage.get(`relevo.${name}`).catch(() => null));
  }

  /** Change what is kept, one change after another. */
  #change<T>(name: string, work: (before: T | null) => T): Promise<void> {
    const { storage } = this.#options;
    const change = (before: string | null): string => JSON.stringify(work(parse<T>(before)));
    if (storage.change) return storage.change(`relevo.${name}`, change);
    const done = this.#write.then(async () => {
      const before = await storage.get(`relevo.${name}`).catch(() => null);
      const after = change(before);
      if (after !== before) await storage.set(`relevo.${name}`, after);
    });
    this.#write = done.catch(() => undefined);
    return done;
  }

  #now(): number {
    return (this.#options.now ?? Date.now)();
  }

  /** One thing after another: a log-out never overtakes a registration. */
  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const { storage } = this.#options;
    const start = (): Promise<T> => (storage.inTurn ? storage.inTurn(work) : work());
    const done = this.#turn.then(start, start);
    this.#turn = done.catch(() => undefined);
    return done;
  }
}

/** The phone is not registered, or logged out: there is no inbox to read. */
export class NotRegisteredError extends Error {
  override readonly name = "NotRegisteredError";

  constructor() {
    super("This phone is not registered: call register first.");
  }
}

/** Read what was kept; what cannot be read is as good as lost. */
function parse<T>(text: string | null): T | null {
  try {
    return JSON.parse(text ?? "null") as T | null;
  } catch {
    return null;
  }
}

function told(answer: { secret: string | null }): string {
  if (!answer.secret) throw new Error("Relevo returned no secret for this installation. Send a signature of the app's server.");
  return answer.secret;
}

function signed(installationId: string, body: InstallationBody): SignedPhone {
  const { project, owner, provider, token } = body;
  return { installationId, ...(project ? { project } : {}), ...(owner ? { owner } : {}), ...(provider ? { provider } : {}), ...(token ? { token } : {}) };
}

/** A short text that differs where the long one does: the push token is not kept twice. */
function digest(text: string): string {
  let hash = 0xcbf29ce484222325n;
  for (const letter of text) hash = BigInt.asUintN(64, (hash ^ BigInt(letter.codePointAt(0) as number)) * 0x100000001b3n);
  return `${text.length}.${hash.toString(36)}`;
}

/** A UUID, also where there is no crypto, as in Hermes: it names a phone and proves nothing. */
function uuid(): string {
  if (globalThis.crypto?.randomUUID) return globalThis.crypto.randomUUID();
  const digit = (place: string): string => {
    const random = Math.floor(Math.random() * 16);
    return (place === "y" ? (random & 3) | 8 : random).toString(16);
  };
  return "xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx".replace(/[xy]/g, digit);
}
