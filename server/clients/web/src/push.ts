import { Device, type InboxOptions, InboxStore, isTemporary, type KeyValue, type Phone, RelevoClient, type Sign } from "@relevo/client";
import { browserStorage } from "./storage.js";

/** `unsupported`: this browser has no push, as Safari on a phone until the page is on the home screen. */
export type Permission = "granted" | "denied" | "undetermined" | "unsupported";
/** `offline`: it is tried again by itself. */
export type Status = "idle" | "registering" | "registered" | "offline" | "failed" | "logged-out";

export interface PushState {
  status: Status;
  permission: Permission;
  /** Whether this browser gets pushes. */
  on: boolean;
  error: unknown;
}

export interface RelevoPushOptions {
  /** Where Relevo answers, such as `https://relay.example`; its HTTP_CORS_ORIGINS names this page's origin. */
  url: string;
  /** What `relevo webpush keys` printed. */
  publicKey: string;
  project?: string;
  /** Ask your own server for a signature: it signs this browser for the user who is logged in there. */
  sign?: Sign;
  /** Where the service worker is served; `/relevo-worker.js` unless said. */
  worker?: string;
  /** Whether to register also where nobody is logged in; the project must be open for registration. */
  anonymous?: boolean;
  /** Shared by all pages of the site and the service worker; another one is for tests alone. */
  storage?: KeyValue;
  fetch?: typeof fetch;
}

/** A tap on a push whose page was open already. */
export interface TapOnPush {
  data: Record<string, unknown>;
  /** The button; empty for a tap on the push itself. */
  action: string;
}

/** What the service worker has to know. */
interface Kept {
  url: string;
  publicKey: string;
  on: boolean;
}

const KEPT = "relevo.web";

/** Permission is asked for only when somebody pressed a button: browsers punish pages that ask by themselves. */
export class NoTapError extends Error {
  override readonly name = "NoTapError";

  constructor() {
    super("Permission is asked for on a tap alone: call switchOn in the handler of a click.");
  }
}

/** Web Push in a page: registers this browser, hears taps, logs out. */
export class RelevoPush {
  readonly device: Device;
  readonly #options: RelevoPushOptions;
  readonly #storage: KeyValue;
  readonly #listeners = new Set<() => void>();
  readonly #onTap = new Set<(tap: TapOnPush) => void>();
  #owner: string | undefined;
  /** Grows with each log-out: a registration that began before one must not come after it. */
  #logOuts = 0;
  #started = false;
  #state: PushState = { status: "idle", permission: permission(), on: false, error: null };

  constructor(options: RelevoPushOptions) {
    this.#options = options;
    this.#storage = options.storage ?? browserStorage;
    const { url, fetch, project, sign } = options;
    const client = new RelevoClient({ url, ...(fetch ? { fetch } : {}) });
    this.device = new Device({ client, storage: this.#storage, ...(project ? { project } : {}), ...(sign ? { sign } : {}) });
  }

  readonly state = (): PushState => this.#state;

  /** Hear of changes of the state; the answer ends that. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  /** The former name of `subscribe`. */
  readonly onChange = this.subscribe;

  /** Hear of taps on pushes that lead to this page, which is open already; else the worker opens `data.url`. */
  readonly onTap = (listener: (tap: TapOnPush) => void): (() => void) => {
    this.#onTap.add(listener);
    return () => this.#onTap.delete(listener);
  };

  /** Say who is logged in, at every visit: this browser stays registered, and nobody is asked for anything. */
  readonly start = async (owner?: string): Promise<void> => {
    this.#owner = owner;
    if (!this.#started) this.#listen();
    await this.register();
  };

  /** Ask for permission, if that is needed, and get pushes from now on. Call it when somebody pressed a button. */
  readonly switchOn = async (): Promise<Permission> => {
    if (permission() === "undetermined") {
      if (navigator.userActivation?.isActive === false) throw new NoTapError();
      await Notification.requestPermission();
    }
    if (permission() === "granted") await this.#keep(true);
    await this.register();
    return this.#state.permission;
  };

  /** Get no more pushes in this browser; the inbox stays. */
  readonly switchOff = async (): Promise<void> => {
    await this.#keep(false);
    await this.#unsubscribe();
    await this.register();
  };

  /** Log out, before the app's own session ends or after it: Relevo hears of it now, or as soon as there is a network. */
  readonly logOut = async (): Promise<void> => {
    this.#owner = undefined;
    this.#logOuts += 1;
    this.#set({ status: "logged-out", error: null });
    await Promise.all([this.device.logOut(), this.#unsubscribe()]); // nothing comes meanwhile
  };

  /** Register again for who is logged in, or send a log-out that waits: for a button that tries again. */
  readonly register = async (): Promise<void> => {
    const owner = this.#owner;
    if (owner === undefined && !this.#options.anonymous) {
      await this.device.flush(); // a log-out that waits
      return;
    }
    const logOuts = this.#logOuts;
    const isOver = (): boolean => this.#owner !== owner || this.#logOuts !== logOuts;
    if (this.#state.status !== "registered") this.#set({ status: "registering" });
    try {
      const browser = await this.#browser();
      if (isOver()) {
        if (this.#state.status === "logged-out") await this.#unsubscribe(); // it may have subscribed since
        return;
      }
      await this.device.register(browser, owner);
      if (!isOver()) this.#set({ status: "registered", on: browser.push_capable ?? false, error: null });
    } catch (error) {
      if (!isOver()) this.#set({ status: isTemporary(error) ? "offline" : "failed", error });
    }
  };

  /** An inbox as a screen shows it; with React, `useInboxOf(push.device)` of `@relevo/client/react`. */
  inbox(options: InboxOptions = {}): InboxStore {
    return new InboxStore(this.device, options);
  }

  /** What Relevo is told of this browser. */
  async #browser(): Promise<Phone> {
    const found = permission();
    const subscription = found === "granted" && (await this.#kept()).on ? await this.#subscribe() : null;
    this.#set({ permission: found });
    const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
    return {
      platform: "web",
      permission: found === "unsupported" ? "undetermined" : found,
      push_capable: subscription !== null,
      locale: navigator.language,
      ...(timeZone ? { timezone: timeZone } : {}),
      ...(subscription ? { provider: "webpush", token: JSON.stringify(subscription) } : {}),
    };
  }

  async #subscribe(): Promise<PushSubscription> {
    const worker = await this.#worker();
    const key = this.#options.publicKey;
    const found = await worker.pushManager.getSubscription();
    await this.#keep(true);
    if (found && isOf(found, key)) return found;
    await found?.unsubscribe();
    return worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  }

  async #unsubscribe(): Promise<void> {
    const worker = permission() === "unsupported" ? undefined : await navigator.serviceWorker.getRegistration(this.#path());
    const found = await worker?.pushManager.getSubscription();
    await found?.unsubscribe().catch(() => false);
    for (const shown of (await worker?.getNotifications()) ?? []) shown.close();
    this.#set({ on: false });
  }

  async #worker(): Promise<ServiceWorkerRegistration> {
    const found = await navigator.serviceWorker.register(this.#path());
    const coming = found.installing ?? found.waiting;
    if (!found.active && coming) {
      await new Promise<void>((resolve, reject) => {
        coming.addEventListener("statechange", () => {
          if (coming.state === "activated") resolve();
          if (coming.state === "redundant") reject(new Error(`The service worker ${this.#path()} could not be installed.`));
        });
      });
    }
    return found;
  }

  #path(): string {
    return this.#options.worker ?? "/relevo-worker.js";
  }

  /** Hear the service worker, and try again when the page is looked at or the network is back. */
  #listen(): void {
    this.#started = true;
    const again = (): void => {
      if (document.visibilityState === "visible" && this.#state.status !== "logged-out") void this.device.flush().catch(() => undefined).then(() => this.register());
    };
    addEventListener("online", again);
    document.addEventListener("visibilitychange", again);
    navigator.serviceWorker?.addEventListener("message", ({ data }: MessageEvent<{ relevo?: string } & TapOnPush>) => {
      if (data?.relevo !== "tap") return;
      for (const listener of this.#onTap) listener({ data: data.data ?? {}, action: data.action });
    });
  }

  async #kept(): Promise<Partial<Kept>> {
    return JSON.parse((await this.#storage.get(KEPT)) ?? "{}") as Partial<Kept>;
  }

  async #keep(on: boolean): Promise<void> {
    const { url, publicKey } = this.#options;
    await this.#storage.set(KEPT, JSON.stringify({ url: url.replace(/\/+$/, ""), publicKey, on } satisfies Kept));
  }

  #set(change: Partial<PushState>): void {
    this.#state = { ...this.#state, ...change };
    for (const listener of this.#listeners) listener();
  }
}

function permission(): Permission {
  if (!("serviceWorker" in navigator) || !("PushManager" in globalThis) || !("Notification" in globalThis)) return "unsupported";
  return Notification.permission === "default" ? "undetermined" : Notification.permission;
}

/** Tell whether a subscription was made with a key: with another one nothing can be sent to it. */
function isOf({ options }: PushSubscription, key: string): boolean {
  if (!options.applicationServerKey) return true;
  const text = btoa(String.fromCharCode(...new Uint8Array(options.applicationServerKey)));
  return text.replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "") === key;
}
