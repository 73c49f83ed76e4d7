// What a headless browser does not let a service worker do is noted here instead: show, focus, open.
const shown = new Map();
const opened = [];
let badge;
Object.defineProperty(WorkerNavigator.prototype, "setAppBadge", { value: async (count) => (badge = count) });
self.registration.showNotification = async (title, options) => {
  const key = options.tag || Symbol(title);
  shown.delete(key);
  shown.set(key, { title, ...options, close: () => shown.delete(key) });
};
self.clients.openWindow = async (url) => opened.push(url);
WindowClient.prototype.focus = async function () {
  opened.push(`focus ${this.url}`);
};
self.addEventListener("install", () => self.skipWaiting());
self.noted = () => ({
  shown: [...shown.values()].map(({ title, body, tag }) => ({ title, body, tag })),
  options: [...shown.values()].map(({ close, ...options }) => options),
  opened,
  badge,
});

/** Let an event happen that only a browser may make, and wait for what it starts. */
async function happen(kind, told) {
  const started = [];
  self.dispatchEvent(Object.assign(new Event(kind), told, { waitUntil: (work) => started.push(work) }));
  await Promise.all(started);
}
self.tapOn = (title, action = "") => happen("notificationclick", { notification: [...shown.values()].find((each) => each.title === title), action });
self.renewSubscription = (text) => happen("pushsubscriptionchange", { newSubscription: { toJSON: () => JSON.parse(text) } });
