import { type FormEvent, type ReactNode, useId, useRef } from "react";
import { type Choices, type PreferencesProps, type Section, SECTIONS, useChoices, useDraft, usePending } from "./choices.js";
import { areTimes, dayNames, type Digest, isTime, namesOf, readWindows, USUAL, type Window } from "./hours.js";
import { useScreens } from "./screens.js";
import { fill } from "./texts.js";

/** What a person gets, how often, and when it is quiet. */
export function Preferences(props: PreferencesProps): ReactNode {
  const { texts, theme } = useScreens();
  const choices = useChoices(props);
  const title = useId();
  const whole = useRef<HTMLDivElement>(null);
  const { phase, retry } = choices;
  const parts: Record<Section, ReactNode> = {
    categories: <Categories choices={choices} />,
    topics: <Topics choices={choices} topics={props.topics ?? []} />,
    digest: <DigestForm choices={choices} />,
    quiet: <QuietForm choices={choices} />,
  };
  return (
    <div ref={whole} role="group" className="relevo relevo-preferences" data-theme={theme} aria-labelledby={title} tabIndex={-1}>
      <h2 id={title}>{texts.settings}</h2>
      <p role="status" className="relevo-state">
        {phase === "loading" ? texts.loading : phase === "logged-out" ? texts.loggedOut : ""}
      </p>
      <div role="alert">{phase === "failed" ? texts.failed : ""}</div>
      {phase === "failed" && (
        <button
          type="button"
          className="relevo-wide"
          onClick={() => {
            whole.current?.focus(); // this button goes away
            retry();
          }}
        >
          {texts.retry}
        </button>
      )}
      {phase === "ready" && (props.sections ?? SECTIONS).map((name) => <Part key={name}>{parts[name]}</Part>)}
    </div>
  );
}

function Part({ children }: { children: ReactNode }): ReactNode {
  return children;
}

/** What came of the last change in a part: said aloud, too. */
function Result({ choices: { result }, of }: { choices: Choices; of: Section }): ReactNode {
  const { texts } = useScreens();
  const mine = result?.section === of ? result : null;
  return (
    <>
      <p role="status" className="relevo-saved">
        {mine?.saved ? texts.saved : ""}
      </p>
      <p role="alert">{mine && !mine.saved ? texts.notSaved : ""}</p>
    </>
  );
}

interface SwitchProps {
  name: string;
  sentence?: string | null;
  on: boolean;
  /** Whether it is on for everybody. */
  fixed?: boolean;
  save: (on: boolean) => Promise<void>;
}

function Switch({ name, sentence, on, fixed = false, save }: SwitchProps): ReactNode {
  const { texts } = useScreens();
  const id = useId();
  const [shown, change] = usePending(on, save);
  const more = [sentence, fixed ? texts.mandatory : null].filter(Boolean).join(" ");
  return (
    <div className="relevo-row">
      <label htmlFor={id}>{name}</label>
      <input id={id} type="checkbox" role="switch" checked={shown} aria-checked={shown} disabled={fixed} aria-describedby={more ? `${id}-more` : undefined} onChange={(event) => change(event.target.checked)} />
      {more && <small id={`${id}-more`}>{more}</small>}
    </div>
  );
}

function Categories({ choices }: { choices: Choices }): ReactNode {
  const { texts } = useScreens();
  const { categories } = choices.told;
  if (!categories.length) return null;
  return (
    <fieldset>
      <legend>{texts.categories}</legend>
      {categories.map(({ category, name, sentence, rule, push, web }) => (
        <Switch key={category} name={name} sentence={sentence} on={push || web} fixed={rule === "mandatory"} save={(on) => choices.choose(category, on, [name, sentence].filter(Boolean).join(": "))} />
      ))}
      <Result choices={choices} of="categories" />
    </fieldset>
  );
}

function Topics({ choices, topics }: { choices: Choices; topics: NonNullable<PreferencesProps["topics"]> }): ReactNode {
  const { texts } = useScreens();
  if (!topics.length) return null;
  return (
    <fieldset>
      <legend>{texts.topics}</legend>
      {topics.map(({ topic, name, sentence }) => (
        <Switch key={topic} name={name} sentence={sentence ?? null} on={choices.hasTopic(topic)} save={(on) => choices.setTopic(topic, on)} />
      ))}
      <Result choices={choices} of="topics" />
    </fieldset>
  );
}

function DigestForm({ choices }: { choices: Choices }): ReactNode {
  const { texts, locale } = useScreens();
  const id = useId();
  const [draft, setDraft, reset] = useDraft(choices.digest);
  if (!choices.told.preferences.length) return null;
  const { often, day, time } = draft;
  const save = (event: FormEvent): void => {
    event.preventDefault();
    if (often !== "mixed" && isTime(time)) void choices.setDigest(draft).finally(reset);
  };
  const kinds: Digest["often"][] = ["now", "hourly", "daily", "weekly"];
  return (
    <form onSubmit={save}>
      <fieldset>
        <legend>{texts.digest}</legend>
        <div className="relevo-fields">
          <label htmlFor={`${id}o`}>{texts.digestWhen}</label>
          <select id={`${id}o`} value={often} onChange={(event) => setDraft({ ...draft, often: event.target.value as Digest["often"] })}>
            {(choices.digest.often === "mixed" ? [...kinds, "mixed" as const] : kinds).map((each) => (
              <option key={each} value={each}>
                {texts[each]}
              </option>
            ))}
          </select>
          {often === "weekly" && (
            <>
              <label htmlFor={`${id}d`}>{texts.digestDay}</label>
              <select id={`${id}d`} value={day} onChange={(event) => setDraft({ ...draft, day: event.target.value })}>
                {dayNames(locale).map(([each, name]) => (
                  <option key={each} value={each}>
                    {name}
                  </option>
                ))}
              </select>
            </>
          )}
          {(often === "daily" || often === "weekly") && (
            <>
              <label htmlFor={`${id}t`}>{texts.digestTime}</label>
              <input id={`${id}t`} type="time" required value={time} onChange={(event) => setDraft({ ...draft, time: event.target.value })} />
            </>
          )}
        </div>
        <button type="submit">{texts.save}</button>
        <Result choices={choices} of="digest" />
      </fieldset>
    </form>
  );
}

function QuietForm({ choices }: { choices: Choices }): ReactNode {
  const { texts, locale } = useScreens();
  const form = useRef<HTMLFormElement>(null);
  const { windows, zone } = choices.told.quiet ?? { windows: null, zone: null };
  const truth = readWindows(windows ?? []);
  const [draft, setDraft, reset] = useDraft(truth);
  const isOn = truth.length > 0;
  const save = (event: FormEvent): void => {
    event.preventDefault();
    if (areTimes(draft)) void choices.setWindows(draft).finally(reset);
  };
  const set = (place: number, change: Partial<Window>): void => setDraft(draft.map((each, at) => (at === place ? { ...each, ...change } : each)));
  const remove = (place: number): void => {
    form.current?.querySelector<HTMLElement>("input")?.focus(); // this button goes away
    setDraft(draft.filter((_, at) => at !== place));
  };
  return (
    <form ref={form} onSubmit={save}>
      <fieldset>
        <legend>{texts.quiet}</legend>
        <Switch name={texts.quietOn} sentence={texts.quietExplained} on={isOn} save={(on) => choices.setWindows(on ? [USUAL] : []).finally(reset)} />
        {isOn && (
          <>
            {draft.map((window, place) => (
              <Hours key={place} window={window} label={window.days ? namesOf(window.days, locale) : texts.quietEveryDay} set={(change) => set(place, change)} {...(draft.length > 1 ? { remove: () => remove(place) } : {})} />
            ))}
            {zone && <p>{fill(texts.quietZone, { zone })}</p>}
            <div className="relevo-buttons">
              <button type="submit">{texts.save}</button>
              <button type="button" onClick={() => setDraft([...draft, { ...USUAL, from: "13:00", to: "14:00" }])}>
                {texts.quietAdd}
              </button>
            </div>
          </>
        )}
        <Result choices={choices} of="quiet" />
      </fieldset>
    </form>
  );
}

function Hours({ window, label, set, remove }: { window: Window; label: string; set: (change: Partial<Window>) => void; remove?: () => void }): ReactNode {
  const { texts } = useScreens();
  const id = useId();
  return (
    <div role="group" aria-label={label} className="relevo-hours">
      <span aria-hidden="true">{label}</span>
      <label htmlFor={`${id}f`}>{texts.quietFrom}</label>
      <input id={`${id}f`} type="time" required value={window.from} onChange={(event) => set({ from: event.target.value })} />
      <label htmlFor={`${id}t`}>{texts.quietTo}</label>
      <input id={`${id}t`} type="time" required value={window.to} onChange={(event) => set({ to: event.target.value })} />
      {remove && (
        <button type="button" onClick={remove}>
          {texts.quietRemove}
        </button>
      )}
    </div>
  );
}
