import { Device, type InstallationBody, isTemporary, type Phone, tapOf } from "@relevo/client";
import * as Application from "expo-application";
import Constants from "expo-constants";
import * as Notifications from "expo-notifications";
import { AppState, Platform } from "react-native";

/** When to ask for permission: when `register` is called with it, as an alert or, on iOS, quietly. */
export type Ask = "never" | "now" | "provisional";
export type Permission = NonNullable<InstallationBody["permission"]>;
/** `offline`: it is tried again by itself. */
export type Status = "idle" | "registering" | "registered" | "offline" | "failed" | "logged-out";

export interface Channel {
  id: string;
  name: string;
  importance?: number;
}

/** Buttons that a push with this `categoryId` shows; ids are those of `push.actions`. */
export interface Category {
  id: string;
  actions: readonly { id: string; title: string; options?: Notifications.NotificationAction["options"] }[];
}

export interface PushState {
  status: Status;
  permission: Permission;
  installationId: string | null;
  error: unknown;
  /** Grows with every push that comes while the app is open. */
  received: number;
  foreground: boolean;
}

export interface SessionOptions {
  device: Device;
  /** `expo` (unless said) sends by Expo; `native` by FCM and APNs themselves. */
  provider?: "expo" | "native";
  /** With `native` on iOS: which of Apple's services knows the token; that of the build unless said. */
  environment?: NonNullable<InstallationBody["environment"]>;
  channels?: readonly Channel[];
  categories?: readonly Category[];
}

type Response = Notifications.NotificationResponse;

const RETRIES_MS = [5_000, 15_000, 60_000, 300_000];

/** What of a push the phone itself does, without a screen: register, stay registered, hear taps, log out. */
export class PushSession {
  readonly device: Device;
  readonly #options: SessionOptions;
  readonly #listeners = new Set<() => void>();
  readonly #onTap = new Set<(response: Response) => void>();
  readonly #onReceived = new Set<(notification: Notifications.Notification) => void>();
  #untold: Response[] = [];
  #owner: string | undefined;
  /** Grows with each log-out: a registration that began before one must not come after it. */
  #logOuts = 0;
  #enabled = false;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #tried = 0;
  #state: PushState;

  constructor(options: SessionOptions) {
    this.device = options.device;
    this.#options = options;
    this.#state = { status: "idle", permission: "undetermined", installationId: null, error: null, received: 0, foreground: AppState.currentState !== "background" };
  }

  readonly state = (): PushState => this.#state;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  /** Hear of taps; one that started the app is told to the first who asks. */
  onTap(listener: (response: Response) => void): () => void {
    this.#onTap.add(listener);
    for (const response of this.#untold.splice(0)) listener(response);
    return () => this.#onTap.delete(listener);
  }

  onReceived(listener: (notification: Notifications.Notification) => void): () => void {
    this.#onReceived.add(listener);
    return () => this.#onReceived.delete(listener);
  }

  /** Listen to the phone until the answer is called. */
  start(): () => void {
    const subscriptions = [
      Notifications.addNotificationResponseReceivedListener((response) => void this.#tapped(response)),
      Notifications.addNotificationReceivedListener((notification) => this.#received(notification)),
      Notifications.addPushTokenListener(() => void this.register()),
      AppState.addEventListener("change", (state) => this.#moved(state === "active")),
    ];
    const last = Notifications.getLastNotificationResponse(); // the listener is too late for the tap that started the app
    if (last) void this.#tapped(last);
    void this.device.flush().catch(() => undefined); // a log-out that waits goes first
    void quietly(() => this.#categorise());
    return () => {
      clearTimeout(this.#retry);
      for (const subscription of subscriptions) subscription.remove();
    };
  }

  /** Say who is logged in. Where nobody is any more, the phone is logged out; where that is not known yet, nothing happens. */
  async identify(owner: string | undefined, enabled: boolean): Promise<void> {
    const left = this.#enabled && this.#owner !== undefined && owner === undefined;
    this.#owner = owner;
    this.#enabled = enabled;
    if (left) await this.logOut();
    else if (enabled) await this.register();
  }

  /** Register, or refresh what changed: permission, push token, owner, language, time zone. */
  readonly register = async (ask: Ask = "never"): Promise<void> => {
    if (!this.#enabled) return;
    clearTimeout(this.#retry);
    this.#set({ status: this.#state.status === "registered" ? "registered" : "registering" });
    const [owner, logOuts] = [this.#owner, this.#logOuts];
    const isOver = (): boolean => !this.#enabled || this.#owner !== owner || this.#logOuts !== logOuts;
    try {
      const installationId = await this.device.installationId();
      this.#set({ installationId });
      const phone = await this.#phone(ask);
      if (isOver()) return;
      await this.device.register(phone, owner);
      this.#tried = 0;
      if (!isOver()) this.#set({ status: "registered", error: null });
    } catch (error) {
      if (!isOver()) this.#failed(error);
    }
  };

  /** Log out: Relevo hears of it now, or as soon as there is a network. */
  readonly logOut = async (): Promise<void> => {
    clearTimeout(this.#retry);
    this.#logOuts += 1;
    const done = await this.device.logOut();
    this.#set({ status: "logged-out", error: null });
    await quietly(() => Notifications.setBadgeCountAsync(0));
    if (done === "later") await quietly(() => Notifications.unregisterForNotificationsAsync()); // so that nothing comes meanwhile
  };

  #failed(error: unknown): void {
    const temporary = isTemporary(error) || !(error instanceof Error && error.name === "RelevoError");
    this.#set({ status: temporary ? "offline" : "failed", error });
    if (!temporary) return;
    const wait = RETRIES_MS[Math.min(this.#tried, RETRIES_MS.length - 1)] as number;
    this.#tried += 1;
    this.#retry = setTimeout(() => void this.register(), wait);
  }

  async #phone(ask: Ask): Promise<Phone> {
    const permission = await this.#permission(ask);
    this.#set({ permission });
    const { locale, timeZone } = Intl.DateTimeFormat().resolvedOptions();
    const platform = Platform.OS === "ios" || Platform.OS === "android" ? Platform.OS : "unknown";
    const known = { platform, permission, locale, ...(timeZone ? { timezone: timeZone } : {}) } as const;
    return permission === "granted" ? { ...known, ...(await this.#token()) } : known;
  }

  async #categorise(): Promise<void> {
    for (const { id, actions } of this.#options.categories ?? []) {
      const shown = actions.map((each) => ({ identifier: each.id, buttonTitle: each.title, ...(each.options ? { options: each.options } : {}) }));
      await Notifications.setNotificationCategoryAsync(id, shown);
    }
  }

  async #permission(ask: Ask): Promise<Permission> {
    if (Platform.OS === "android") {
      // Android asks for permission only where there is a channel.
      for (const { id, name, importance = Notifications.AndroidImportance.DEFAULT } of this.#options.channels ?? [{ id: "default", name: "Default" }]) {
        await Notifications.setNotificationChannelAsync(id, { name, importance });
      }
    }
    let found = await Notifications.getPermissionsAsync();
    if (ask !== "never" && !isGranted(found) && found.canAskAgain) {
      const ios = { allowAlert: true, allowBadge: true, allowSound: true, allowProvisional: ask === "provisional" };
      found = await Notifications.requestPermissionsAsync({ ios });
    }
    return isGranted(found) ? "granted" : found.status === "denied" ? "denied" : "undetermined";
  }

  async #token(): Promise<Phone> {
    if (this.#options.provider !== "native") {
      const projectId = (Constants.expoConfig?.extra?.["eas"]?.projectId ?? Constants.easConfig?.projectId) as string | undefined;
      const { data } = await Notifications.getExpoPushTokenAsync(projectId ? { projectId } : {});
      return { provider: "expo", token: data };
    }
    const { type, data } = await Notifications.getDevicePushTokenAsync();
    if (type === "ios") return { provider: "apns", token: String(data), environment: this.#options.environment ?? (await environmentOfBuild()) };
    return { provider: "fcm", token: String(data) };
  }

  /** Tell of a tap once, however often the platform does, also after a reload. */
  async #tapped(response: Response): Promise<void> {
    const action = response.actionIdentifier === Notifications.DEFAULT_ACTION_IDENTIFIER ? undefined : response.actionIdentifier;
    const tap = tapOf(dataOf(response), action);
    if (tap && !(await this.device.opened(tap))) return;
    await quietly(async () => Notifications.clearLastNotificationResponse());
    if (this.#onTap.size === 0) this.#untold.push(response);
    for (const listener of this.#onTap) listener(response);
  }

  #received(notification: Notifications.Notification): void {
    this.#set({ received: this.#state.received + 1 });
    for (const listener of this.#onReceived) listener(notification);
  }

  #moved(foreground: boolean): void {
    this.#set({ foreground });
    if (!foreground) return;
    void this.device.flush().catch(() => undefined);
    void this.register(); // what did not change is not sent
  }

  #set(change: Partial<PushState>): void {
    this.#state = { ...this.#state, ...change };
    for (const listener of this.#listeners) listener();
  }
}

function isGranted(found: Notifications.NotificationPermissionsStatus): boolean {
  return found.granted || found.ios?.status === Notifications.IosAuthorizationStatus.PROVISIONAL;
}

/** Which of Apple's services knows the tokens of this build: a development build's are known to the sandbox alone. */
async function environmentOfBuild(): Promise<NonNullable<InstallationBody["environment"]>> {
  const found = await Application.getIosPushNotificationServiceEnvironmentAsync().catch(() => null);
  return found === "development" ? "sandbox" : "production";
}

/** What a tap leads to: the link of the button, else that of the push. */
export function linkOf(response: Response): string | undefined {
  const data = dataOf(response);
  const button = actionsOf(data).find((each) => each.id === response.actionIdentifier);
  const found = button?.link ?? data["url"];
  return typeof found === "string" ? found : undefined;
}

function actionsOf({ actions }: Record<string, unknown>): { id?: unknown; link?: unknown }[] {
  try {
    const found: unknown = typeof actions === "string" ? JSON.parse(actions) : actions; // FCM takes texts alone
    return Array.isArray(found) ? (found as unknown[]).filter((each): each is object => typeof each === "object" && each !== null) : [];
  } catch {
    return [];
  }
}

/** A push's data, by Expo or by the phone's own service. */
export function dataOf({ notification }: Pick<Response, "notification">): Record<string, unknown> {
  const { content, trigger } = notification.request;
  const native = trigger as { payload?: Record<string, unknown>; remoteMessage?: { data?: Record<string, unknown> } } | null;
  return { ...native?.payload, ...native?.remoteMessage?.data, ...content.data };
}

async function quietly(work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
  } catch {
    // a badge or a token that stays is no reason to fail
  }
}
