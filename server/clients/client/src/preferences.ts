import type { CategoryBody, Hours, NamedPreference, PhoneChoiceIn, PhoneHoursIn, PreferenceBody } from "./generated/index.js";

/** Fields of a preference to change, or how to change what is there; fields that are left out stay. */
export type PreferenceChange = PreferenceBody | ((before: NamedPreference | undefined) => PreferenceBody);

/** Where a person's choices are read and set: a Device, or something of your own. */
export interface PreferencesSource {
  owner(): Promise<string | null>;
  preferences(): Promise<NamedPreference[]>;
  setPreference(name: string, preference: PreferenceBody | null): Promise<void>;
  changePreference(name: string, change: PreferenceChange): Promise<NamedPreference>;
  categories(locale?: string): Promise<CategoryBody[]>;
  choose(category: string, choice: PhoneChoiceIn): Promise<void>;
  quiet(): Promise<Hours>;
  setQuiet(hours: PhoneHoursIn): Promise<void>;
}
