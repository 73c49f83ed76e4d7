export { NoTapError, type Permission, type PushState, RelevoPush, type RelevoPushOptions, type Status, type TapOnPush } from "./push.js";
export { browserStorage } from "./storage.js";
