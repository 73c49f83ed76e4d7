/** Quiet hours of some days as a form shows them. */
export interface Window {
  /** `sat,sun`; empty for every day. */
  days: string;
  from: string;
  to: string;
}

const WINDOW = /^(?:([a-z]{3}(?:,[a-z]{3})*) )?(\d\d:\d\d)-(\d\d:\d\d)$/;
const DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

export const USUAL: Window = { days: "", from: "22:00", to: "07:00" };

/** Read windows such as `sat,sun 22:00-07:00`. A form shows midnight as 00:00. */
export function readWindows(windows: readonly string[]): Window[] {
  return windows.map((each) => {
    const [, days = "", from = "", to = ""] = WINDOW.exec(each) ?? [];
    return { days, from, to: to === "24:00" ? "00:00" : to };
  });
}

/** Write windows as Relevo takes them. */
export function writeWindows(windows: readonly Window[]): string[] {
  return windows.map(({ days, from, to }) => `${days ? `${days} ` : ""}${from}-${to}`);
}

/** Whether all times are there. */
export function areTimes(windows: readonly Window[]): boolean {
  return windows.every(({ from, to }) => isTime(from) && isTime(to));
}

export function isTime(text: string): boolean {
  return /^([01]\d|2[0-3]):[0-5]\d$/.test(text);
}

/** When what a preference matches is sent. */
export interface Digest {
  often: "now" | "hourly" | "daily" | "weekly" | "mixed";
  day: string;
  time: string;
}

/** Read the `delivery` of preferences: that of all, or that they differ. */
export function readDigest(deliveries: readonly (string | null | undefined)[]): Digest {
  const [first = "now", ...others] = new Set(deliveries.map((each) => each ?? "now"));
  const [often = "now", ...rest] = first.split(" ");
  const [time = "08:00", day = "mon"] = rest.reverse();
  return { often: others.length ? "mixed" : (often as Digest["often"]), day, time };
}

/** Write it as a preference has it. */
export function writeDigest({ often, day, time }: Digest): string {
  return often === "daily" ? `daily ${time}` : often === "weekly" ? `weekly ${day} ${time}` : often;
}

/** The days of the week as their names in a language. */
export function dayNames(locale: string): [day: string, name: string][] {
  const names = new Intl.DateTimeFormat(locale, { weekday: "long", timeZone: "UTC" });
  return DAYS.map((day, place) => [day, names.format(Date.UTC(2024, 0, 1 + place))]);
}

/** `sat,sun` in the words of a language. */
export function namesOf(days: string, locale: string): string {
  const names = new Map(dayNames(locale));
  return days.split(",").map((day) => names.get(day) ?? day).join(", ");
}
