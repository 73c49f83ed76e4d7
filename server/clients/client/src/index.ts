export type * from "./generated/index.js";
export { type As, type Attributes, type AttributesIn, type EventRef, type InboxQuery, type Installation, type Mark, type Proof, RelevoClient, type Whose } from "./client.js";
export { Device, type DeviceOptions, type KeyValue, NotRegisteredError, type Phone, type Sign, type Tap, tapOf } from "./device.js";
export { isTemporary, NoAnswerError, RelevoError } from "./errors.js";
export { type Call, Http, type HttpOptions, type Method, type Operation } from "./http.js";
export { type InboxOptions, type InboxSource, type InboxState, InboxStore } from "./inbox.js";
export type { PreferenceChange, PreferencesSource } from "./preferences.js";
export type { SignedPhone } from "./sign.js";
