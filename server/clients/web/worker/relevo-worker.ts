// Relevo's service worker: copy it beside your pages, or load it into your own with importScripts.
(() => {
  interface Button {
    id: string;
    title: string;
    icon?: string;
    link?: string;
  }

  /** A button as browsers know it; `navigate` is that of declarative pushes. */
  interface Shown {
    action: string;
    title: string;
    icon?: string;
    navigate?: string;
  }

  interface Message extends Omit<NotificationOptions, "badge"> {
    title?: string;
    /** The number on the app's icon. */
    badge?: number;
    badgeIcon?: string;
    actions?: Button[];
  }

  /** What browsers add to the event of a declarative push. */
  interface Declared {
    // eslint-disable-next-line @typescript-eslint/no-explicit-any -- not in the types of browsers yet
    notification?: any;
    appBadge?: number;
  }

  const worker = self as unknown as ServiceWorkerGlobalScope;
  const { registration, clients } = worker;

  worker.addEventListener("push", (event) => event.waitUntil(show(messageOf(event as PushEvent & Declared))));

  worker.addEventListener("notificationclick", (event) => {
    const { notification, action } = event;
    notification.close();
    event.waitUntil(Promise.all([open(notification.data, action), report(notification.data, action)]));
  });

  worker.addEventListener("pushsubscriptionchange", (event) => event.waitUntil(renew(event)));

  /** A push as it came: plain, declarative, or as a browser read a declarative one. */
  function messageOf(event: PushEvent & Declared): Message {
    const given = event.data?.json() ?? {};
    const declared = given.notification ?? (event.data ? undefined : event.notification);
    if (!declared) return given;
    const { title, body, tag, icon, image, badge, silent, lang, dir, vibrate, renotify, requireInteraction, timestamp, data, navigate } = declared;
    const actions = declared.actions?.map((each: Shown) => ({ id: each.action, title: each.title, icon: each.icon, link: each.navigate }));
    const shown = { title, body, tag, icon, image, silent, lang, dir, vibrate, renotify, requireInteraction, timestamp, actions };
    return { ...shown, badgeIcon: badge, badge: given.app_badge ?? event.appBadge, data: { ...data, url: data?.url ?? navigate } };
  }

  async function show({ title, body, badge, badgeIcon, actions, data, ...more }: Message): Promise<void> {
    const links = Object.fromEntries((actions ?? []).flatMap(({ id, link }) => (link ? [[id, link]] : [])));
    const options = {
      ...more,
      body: title ? body : "",
      ...(badgeIcon ? { badge: badgeIcon } : {}),
      ...(actions ? { actions: actions.map(({ id, title: told, icon }) => ({ action: id, title: told, ...(icon ? { icon } : {}) })) } : {}),
      data: actions ? { ...data, links } : data,
    };
    const counted = badge == null ? undefined : worker.navigator.setAppBadge?.(badge);
    await Promise.all([registration.showNotification(title || body || "", options as NotificationOptions), counted]);
  }

  /** Show the page that a push, or its button, leads to; one that is open already is told of the tap. */
  async function open(given: { url?: string; links?: Record<string, string> } | null, action: string): Promise<void> {
    const { links, ...data } = given ?? {};
    const url = new URL(links?.[action] || data.url || "/", worker.location.origin).href;
    const page = (await clients.matchAll({ type: "window", includeUncontrolled: true })).find((each) => each.url === url);
    page?.postMessage({ relevo: "tap", data, action });
    await (page ? page.focus() : clients.openWindow(url));
  }

  /** Report a tap if its push asks for that: now, or by a page once there is a network. */
  async function report(data: { notificationDeliveryId?: unknown; reportOpened?: unknown } | null, button: string): Promise<void> {
    const deliveryId = Number(data?.notificationDeliveryId);
    if (!data?.reportOpened || !(deliveryId > 0) || !(await kept("device"))?.secret) return;
    const [at, action] = [Date.now(), button ? { action: button } : {}];
    await kept("queue", (queue) => [...(queue ?? []), { kind: "opened", at, deliveryId, ...action }].slice(-50));
    const told = await call("POST", "/opened", { delivery_id: deliveryId, at: new Date(at).toISOString(), ...action });
    if (told) await kept("queue", (queue) => queue.filter((each: { at: number; deliveryId?: number }) => each.at !== at || each.deliveryId !== deliveryId));
  }

  /** Hand in the subscription that replaces one which the browser ended; a page does so, too, when it is opened. */
  async function renew({ newSubscription }: PushSubscriptionChangeEvent): Promise<void> {
    const { on, publicKey } = (await kept("web")) ?? {};
    if (!on || !(await kept("device"))?.secret) return; // it was logged out
    const found = newSubscription ?? (await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: publicKey }));
    await call("PUT", "", { provider: "webpush", token: JSON.stringify(found) });
  }

  /** Call Relevo as this browser, and tell whether it was heard. */
  async function call(method: string, path: string, body: object): Promise<boolean> {
    const [device, web] = [await kept("device"), await kept("web")];
    const headers = { Authorization: `Bearer ${device?.secret}`, "Content-Type": "application/json" };
    const sent = fetch(`${web?.url}/v1/installations/${device?.id}${path}`, { method, headers, body: JSON.stringify(body) });
    return sent.then((answer) => answer.ok, () => false);
  }

  /** Read what the pages keep, or change it, in one step. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- what was kept is JSON
  function kept(name: string, change?: (before: any) => unknown): Promise<any> {
    return new Promise((resolve, reject) => {
      const opening = indexedDB.open("relevo", 1);
      opening.onupgradeneeded = () => opening.result.createObjectStore("kept");
      opening.onerror = () => reject(opening.error);
      opening.onsuccess = () => {
        const work = opening.result.transaction("kept", "readwrite");
        const reading = work.objectStore("kept").get(`relevo.${name}`);
        reading.onsuccess = () => change && work.objectStore("kept").put(JSON.stringify(change(JSON.parse(reading.result ?? "null"))), `relevo.${name}`);
        work.onabort = () => reject(work.error);
        work.oncomplete = () => {
          opening.result.close();
          resolve(JSON.parse(reading.result ?? "null"));
        };
      };
    });
  }
})();
