export { Bell, type BellProps } from "./bell.js";
export type { PreferencesProps, Section, TopicChoice } from "./choices.js";
export { Inbox } from "./inbox.js";
export { linkOf } from "./links.js";
export { Preferences } from "./preferences.js";
export { RelevoScreens, type RelevoScreensProps, type ScreensPush } from "./screens.js";
export { type Texts, textsFor } from "./texts.js";
