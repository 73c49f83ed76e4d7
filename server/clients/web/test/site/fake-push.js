// A headless browser refuses notifications and has no push service: both are faked here, with subscriptions of the sandbox.
(() => {
  Object.defineProperty(Notification, "permission", { get: () => localStorage.getItem("permission") ?? "default" });
  Notification.requestPermission = async () => {
    localStorage.setItem("permission", "granted");
    return "granted";
  };
  const revive = (text) => ({
    options: { applicationServerKey: null },
    toJSON: () => JSON.parse(text),
    unsubscribe: async () => {
      localStorage.removeItem("subscription");
      return true;
    },
  });
  PushManager.prototype.getSubscription = async () => {
    const found = localStorage.getItem("subscription");
    return found && revive(found);
  };
  PushManager.prototype.subscribe = async () => {
    const made = await window.subscribeAtSandbox();
    localStorage.setItem("subscription", made);
    return revive(made);
  };
})();
