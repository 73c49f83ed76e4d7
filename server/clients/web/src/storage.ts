import type { KeyValue } from "@relevo/client";

/** What the pages of a site and its service worker share. */
export const browserStorage: Required<KeyValue> = {
  get: (name) => transact("readonly", (store) => store.get(name)).then((found) => (found as string | undefined) ?? null),
  set: async (name, value) => void (await transact("readwrite", (store) => store.put(value, name))),
  change: async (name, work) => {
    await transact("readwrite", (store) => {
      const reading = store.get(name) as IDBRequest<string | undefined>;
      reading.onsuccess = () => {
        const before = reading.result ?? null;
        const after = work(before);
        if (after !== before) store.put(after, name);
      };
      return reading;
    });
  },
  inTurn: async (work) => ("locks" in navigator ? ((await navigator.locks.request("relevo", work)) as Awaited<ReturnType<typeof work>>) : work()),
};

function transact(mode: IDBTransactionMode, work: (store: IDBObjectStore) => IDBRequest): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open("relevo", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("kept");
    opening.onerror = () => reject(opening.error);
    opening.onsuccess = () => {
      const transaction = opening.result.transaction("kept", mode);
      const request = work(transaction.objectStore("kept"));
      transaction.onabort = () => reject(transaction.error);
      transaction.oncomplete = () => {
        opening.result.close(); // else a page that stays open keeps the site's data from being cleared
        resolve(request.result);
      };
    };
  });
}
