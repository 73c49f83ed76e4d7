import type { NotificationPermissionsStatus } from "expo-notifications";
import { phone } from "./phone.js";

export const DEFAULT_ACTION_IDENTIFIER = "expo.modules.notifications.actions.DEFAULT";
export const AndroidImportance = { DEFAULT: 3 };
export const IosAuthorizationStatus = { PROVISIONAL: 3 };

function permissions(): NotificationPermissionsStatus {
  const { permission } = phone;
  return { status: permission, granted: permission === "granted", canAskAgain: permission === "undetermined" };
}

export const getPermissionsAsync = async (): Promise<NotificationPermissionsStatus> => permissions();
export const requestPermissionsAsync = async (): Promise<NotificationPermissionsStatus> => {
  phone.asked += 1;
  phone.permission = "granted";
  return permissions();
};
export const getExpoPushTokenAsync = async (): Promise<{ type: "expo"; data: string }> => {
  if (!phone.online) throw new Error("ERR_NOTIFICATIONS_NETWORK_ERROR");
  return { type: "expo", data: phone.token };
};
export const getDevicePushTokenAsync = async (): Promise<{ type: string; data: string }> => ({ type: phone.os, data: phone.token });
export const addPushTokenListener = (listener: (token: unknown) => void) => phone.listen("token", listener);
export const addNotificationReceivedListener = (listener: (event: unknown) => void) => phone.listen("received", listener);
export const addNotificationResponseReceivedListener = (listener: (event: unknown) => void) => phone.listen("response", listener);
export const getLastNotificationResponse = () => phone.last;
export const clearLastNotificationResponse = () => {
  phone.last = null;
};
export const setNotificationChannelAsync = async (id: string) => phone.channels.push(id);
export const setNotificationCategoryAsync = async (id: string, actions: { identifier: string; buttonTitle: string }[]) => phone.categories.set(id, actions);
export const setBadgeCountAsync = async (count: number) => {
  phone.badge = count;
  return true;
};
export const unregisterForNotificationsAsync = async () => {
  phone.unregistered += 1;
};
