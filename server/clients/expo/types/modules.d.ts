// What is used of the modules that an app brings along, as they declare it: to build here without React Native.

declare module "expo-notifications" {
  interface EventSubscription {
    remove(): void;
  }
  interface NotificationRequest {
    identifier: string;
    content: { title: string | null; body: string | null; data: Record<string, unknown> };
    trigger: unknown;
  }
  interface Notification {
    date: number;
    request: NotificationRequest;
  }
  interface NotificationResponse {
    notification: Notification;
    actionIdentifier: string;
  }
  interface NotificationPermissionsStatus {
    status: "granted" | "denied" | "undetermined";
    granted: boolean;
    canAskAgain: boolean;
    ios?: { status: number };
  }
  interface NotificationChannelInput {
    name: string | null;
    importance: number;
  }
  interface NotificationPermissionsRequest {
    ios?: { allowAlert?: boolean; allowBadge?: boolean; allowSound?: boolean; allowProvisional?: boolean };
  }
  interface NotificationAction {
    identifier: string;
    buttonTitle: string;
    options?: { opensAppToForeground?: boolean; isDestructive?: boolean; isAuthenticationRequired?: boolean };
  }
  const DEFAULT_ACTION_IDENTIFIER: string;
  const AndroidImportance: { DEFAULT: number };
  const IosAuthorizationStatus: { PROVISIONAL: number };
  function getPermissionsAsync(): Promise<NotificationPermissionsStatus>;
  function requestPermissionsAsync(asked?: NotificationPermissionsRequest): Promise<NotificationPermissionsStatus>;
  function getExpoPushTokenAsync(options?: { projectId?: string }): Promise<{ type: "expo"; data: string }>;
  function getDevicePushTokenAsync(): Promise<{ type: string; data: any }>;
  function addPushTokenListener(listener: (token: { type: string; data: any }) => void): EventSubscription;
  function addNotificationReceivedListener(listener: (event: Notification) => void): EventSubscription;
  function addNotificationResponseReceivedListener(listener: (event: NotificationResponse) => void): EventSubscription;
  function getLastNotificationResponse(): NotificationResponse | null;
  function clearLastNotificationResponse(): void;
  function setNotificationChannelAsync(id: string, channel: NotificationChannelInput): Promise<unknown>;
  function setNotificationCategoryAsync(id: string, actions: NotificationAction[]): Promise<unknown>;
  function setBadgeCountAsync(count: number): Promise<boolean>;
  function unregisterForNotificationsAsync(): Promise<void>;
}

declare module "expo-secure-store" {
  const AFTER_FIRST_UNLOCK: number;
  function getItemAsync(key: string, options?: { keychainAccessible?: number }): Promise<string | null>;
  function setItemAsync(key: string, value: string, options?: { keychainAccessible?: number }): Promise<void>;
  function deleteItemAsync(key: string, options?: { keychainAccessible?: number }): Promise<void>;
}

declare module "expo-application" {
  /** Rejects on Android; null on a simulator. */
  function getIosPushNotificationServiceEnvironmentAsync(): Promise<"development" | "production" | null>;
}

declare module "expo-constants" {
  const Constants: { expoConfig: { extra?: Record<string, any> } | null; easConfig: { projectId?: string } | null };
  export default Constants;
}

declare module "react-native" {
  const AppState: {
    currentState: string;
    addEventListener(kind: "change", listener: (state: string) => void): { remove(): void };
  };
  const Platform: { OS: "ios" | "android" | "web" | "windows" | "macos" };
}
