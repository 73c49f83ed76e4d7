import { phone } from "./phone.js";

export const getIosPushNotificationServiceEnvironmentAsync = async (): Promise<"development" | "production" | null> => {
  if (phone.os !== "ios") throw new Error("ERR_UNAVAILABLE");
  return phone.build;
};
