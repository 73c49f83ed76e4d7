import type { ReactNode } from "react";
import { RelevoScreens as Screens, type RelevoScreensProps as ScreensProps } from "../screens.js";
import { type Colors, OwnColors } from "./look.js";

export { Bell } from "./bell.js";
export { Inbox } from "./inbox.js";
export { Preferences } from "./preferences.js";
export type { BellProps } from "../bell.js";
export type { PreferencesProps, Section, TopicChoice } from "../choices.js";
export { linkOf } from "../links.js";
export type { ScreensPush } from "../screens.js";
export { type Texts, textsFor } from "../texts.js";
export type { Colors } from "./look.js";

export interface RelevoScreensProps extends ScreensProps {
  /** Colors in place of ours: what the CSS variables are on the web. */
  colors?: Partial<Colors>;
}

const NONE: Partial<Colors> = {};

/** What all screens below share: one inbox, a language, a theme, colors. */
export function RelevoScreens({ colors = NONE, children, ...others }: RelevoScreensProps): ReactNode {
  return (
    <OwnColors.Provider value={colors}>
      <Screens {...others}>{children}</Screens>
    </OwnColors.Provider>
  );
}
