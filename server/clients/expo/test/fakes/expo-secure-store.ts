import { phone } from "./phone.js";

export const AFTER_FIRST_UNLOCK = 0;

export const getItemAsync = async (key: string): Promise<string | null> => phone.kept.get(key) ?? null;
export const setItemAsync = async (key: string, value: string): Promise<void> => {
  if (!/^[\w.-]+$/.test(key)) throw new Error(`Invalid key ${key}`);
  if (Buffer.byteLength(value) > 2048) throw new Error(`The value of ${key} is larger than 2048 bytes`);
  phone.kept.set(key, value);
};
export const deleteItemAsync = async (key: string): Promise<void> => {
  phone.kept.delete(key);
};
