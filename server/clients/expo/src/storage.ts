import type { KeyValue } from "@relevo/client";
import * as SecureStore from "expo-secure-store";

const PART = 1_000; // SecureStore warns of values above 2,048 bytes
const OPTIONS = { keychainAccessible: SecureStore.AFTER_FIRST_UNLOCK }; // a push may start the app behind a locked screen

/** The keychain or keystore of the phone, in which long values are kept in parts. */
export const secureStorage: KeyValue = {
  async get(name) {
    const first = await SecureStore.getItemAsync(name, OPTIONS);
    if (first === null) return null;
    const [count = "", ...rest] = first.split("\n");
    const more = Array.from({ length: Number(count) - 1 }, (_, place) => SecureStore.getItemAsync(`${name}.${place + 1}`, OPTIONS));
    return [rest.join("\n"), ...(await Promise.all(more))].join("");
  },
  async set(name, value) {
    const parts = value.match(new RegExp(`[^]{1,${PART}}`, "g")) ?? [""];
    await Promise.all(parts.slice(1).map((part, place) => SecureStore.setItemAsync(`${name}.${place + 1}`, part, OPTIONS)));
    await SecureStore.setItemAsync(name, `${parts.length}\n${parts[0]}`, OPTIONS);
  },
};
