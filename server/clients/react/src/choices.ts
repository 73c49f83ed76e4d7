import { usePreferencesOf, type UsePreferences } from "@relevo/client/react";
import { useCallback, useEffect, useRef, useState } from "react";
import { type Digest, readDigest, writeDigest, type Window, writeWindows } from "./hours.js";
import { phaseOf, useScreens } from "./screens.js";

export type Section = "categories" | "topics" | "digest" | "quiet";

/** A topic of your events, in the words of your app. */
export interface TopicChoice {
  topic: string;
  name: string;
  sentence?: string;
}

export interface PreferencesProps {
  /** Topics to choose from; none unless said. */
  topics?: readonly TopicChoice[];
  /** The preference of the phone that holds the chosen topics: `topics` unless said. */
  topicsPreference?: string;
  /** Which parts are shown, in this order. */
  sections?: readonly Section[];
}

export const SECTIONS: readonly Section[] = ["categories", "topics", "digest", "quiet"];

export interface Choices {
  phase: ReturnType<typeof phaseOf>;
  told: UsePreferences;
  retry: () => void;
  /** What came of the last change, and where it was made. */
  result: { section: Section; saved: boolean } | null;
  choose: (category: string, wanted: boolean, words: string) => Promise<void>;
  hasTopic: (topic: string) => boolean;
  setTopic: (topic: string, wanted: boolean) => Promise<void>;
  digest: Digest;
  setDigest: (digest: Digest) => Promise<void>;
  setWindows: (windows: readonly Window[]) => Promise<void>;
}

/** A person's choices, as forms of any kind show and save them. A save changes nothing else; what fails leaves all as it was. */
export function useChoices({ topicsPreference = "topics" }: PreferencesProps): Choices {
  const { push, status, locale } = useScreens();
  const active = status === "registered";
  const told = usePreferencesOf(push.device, { active, locale });
  const [result, setResult] = useState<Choices["result"]>(null);
  const save = async (section: Section, work: () => Promise<void>): Promise<void> => {
    setResult(null);
    try {
      await work();
      setResult({ section, saved: true });
    } catch {
      setResult({ section, saved: false });
    }
  };
  const holder = told.preferences.find((each) => each.name === topicsPreference);
  const deliveries = told.preferences.map((each) => each.delivery);
  return {
    phase: phaseOf(status, told, told.quiet !== null),
    told,
    retry: () => void (active ? told.refresh() : push.register()),
    result,
    choose: (category, wanted, words) => save("categories", () => told.choose(category, wanted, words)),
    hasTopic: (topic) => holder !== undefined && holder.enabled !== false && (holder.topics ?? []).includes(topic),
    setTopic: (topic, wanted) =>
      save("topics", () =>
        told.change(topicsPreference, (before) => {
          const chosen = new Set(before?.enabled === false ? [] : before?.topics);
          if (wanted) chosen.add(topic);
          else chosen.delete(topic);
          const begins = before ? {} : { delivery: deliveries[0] ?? null };
          return { ...begins, topics: [...chosen], enabled: chosen.size > 0 }; // without topics it would match every event that names none
        }),
      ),
    digest: readDigest(deliveries),
    setDigest: (digest) => save("digest", () => setDeliveries(told, writeDigest(digest))),
    setWindows: (windows) => save("quiet", () => told.setQuiet(writeWindows(windows))),
  };
}

/** Set when all preferences are sent; if one cannot be set, the others get theirs back. */
async function setDeliveries({ preferences, change }: UsePreferences, delivery: string): Promise<void> {
  const done: typeof preferences[number][] = [];
  try {
    for (const each of preferences) {
      await change(each.name, { delivery });
      done.push(each);
    }
  } catch (error) {
    for (const each of done) await change(each.name, { delivery: each.delivery ?? null }).catch(() => undefined);
    throw error;
  }
}

/** A value that shows its change at once, while it is saved; then it shows what is true. Changes are saved one after another. */
export function usePending<T>(value: T, save: (value: T) => Promise<void>): [T, (value: T) => void] {
  const [pending, setPending] = useState<{ value: T } | null>(null);
  const turn = useRef<Promise<void>>(Promise.resolve());
  const latest = useRef(save);
  latest.current = save;
  const change = useCallback((next: T) => {
    const mine = { value: next };
    setPending(mine);
    turn.current = turn.current.then(() => latest.current(next)).finally(() => setPending((now) => (now === mine ? null : now)));
  }, []);
  return [pending ? pending.value : value, change];
}

/** What a form shows until it is saved: then, or if that fails, what is true. */
export function useDraft<T>(truth: T): [T, (draft: T) => void, reset: () => void] {
  const [draft, setDraft] = useState<{ of: string; value: T } | null>(null);
  const of = JSON.stringify(truth);
  useEffect(() => setDraft((now) => (now?.of === of ? now : null)), [of]);
  return [draft?.of === of ? draft.value : truth, (value) => setDraft({ of, value }), () => setDraft(null)];
}
