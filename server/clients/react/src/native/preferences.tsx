import { type ReactNode } from "react";
import { Pressable, Switch as PhoneSwitch, Text, TextInput, View } from "react-native";
import { type Choices, type PreferencesProps, type Section, SECTIONS, useChoices, useDraft, usePending } from "../choices.js";
import { areTimes, dayNames, type Digest, isTime, namesOf, readWindows, USUAL } from "../hours.js";
import { useScreens } from "../screens.js";
import { fill } from "../texts.js";
import { Box, Button, Row, useColors, Words } from "./look.js";

/** What a person gets, how often, and when it is quiet. Put it into a ScrollView of your screen. */
export function Preferences(props: PreferencesProps): ReactNode {
  const { texts } = useScreens();
  const { background } = useColors();
  const choices = useChoices(props);
  const { phase, retry } = choices;
  const parts: Record<Section, () => ReactNode> = {
    categories: () => <Categories key="categories" choices={choices} />,
    topics: () => <Topics key="topics" choices={choices} topics={props.topics ?? []} />,
    digest: () => <DigestForm key="digest" choices={choices} />,
    quiet: () => <QuietForm key="quiet" choices={choices} />,
  };
  return (
    <View style={{ gap: 12, padding: 12, backgroundColor: background }}>
      <Words is="title">{texts.settings}</Words>
      {phase === "loading" && <Words is="state">{texts.loading}</Words>}
      {phase === "logged-out" && <Words is="state">{texts.loggedOut}</Words>}
      {phase === "failed" && <Words is="alert">{texts.failed}</Words>}
      {phase === "failed" && <Button title={texts.retry} onPress={retry} />}
      {phase === "ready" && (props.sections ?? SECTIONS).map((name) => parts[name]())}
    </View>
  );
}

function Result({ choices: { result }, of }: { choices: Choices; of: Section }): ReactNode {
  const { texts } = useScreens();
  if (result?.section !== of) return null;
  return result.saved ? <Words is="state">{texts.saved}</Words> : <Words is="alert">{texts.notSaved}</Words>;
}

interface SwitchProps {
  name: string;
  sentence?: string | null;
  on: boolean;
  fixed?: boolean;
  save: (on: boolean) => Promise<void>;
}

function Switch({ name, sentence, on, fixed = false, save }: SwitchProps): ReactNode {
  const { texts } = useScreens();
  const { accent, border } = useColors();
  const [shown, change] = usePending(on, save);
  const more = [sentence, fixed ? texts.mandatory : null].filter(Boolean).join(" ");
  return (
    <View>
      <Row>
        <Words>{name}</Words>
        <PhoneSwitch aria-label={name} value={shown} onValueChange={change} disabled={fixed} trackColor={{ false: border, true: accent }} />
      </Row>
      {more !== "" && <Words is="small">{more}</Words>}
    </View>
  );
}

function Categories({ choices }: { choices: Choices }): ReactNode {
  const { texts } = useScreens();
  const { categories } = choices.told;
  if (!categories.length) return null;
  return (
    <Box title={texts.categories}>
      {categories.map(({ category, name, sentence, rule, push, web }) => (
        <Switch key={category} name={name} sentence={sentence} on={push || web} fixed={rule === "mandatory"} save={(on) => choices.choose(category, on, [name, sentence].filter(Boolean).join(": "))} />
      ))}
      <Result choices={choices} of="categories" />
    </Box>
  );
}

function Topics({ choices, topics }: { choices: Choices; topics: NonNullable<PreferencesProps["topics"]> }): ReactNode {
  const { texts } = useScreens();
  if (!topics.length) return null;
  return (
    <Box title={texts.topics}>
      {topics.map(({ topic, name, sentence }) => (
        <Switch key={topic} name={name} sentence={sentence ?? null} on={choices.hasTopic(topic)} save={(on) => choices.setTopic(topic, on)} />
      ))}
      <Result choices={choices} of="topics" />
    </Box>
  );
}

function Radio({ name, on, choose }: { name: string; on: boolean; choose: () => void }): ReactNode {
  const { accent, border, text } = useColors();
  return (
    <Pressable role="radio" aria-checked={on} onPress={choose} style={{ minHeight: 44, flexDirection: "row", alignItems: "center", gap: 8 }}>
      <View style={{ width: 20, height: 20, borderRadius: 10, borderWidth: on ? 6 : 2, borderColor: on ? accent : border }} />
      <Text style={{ color: text, fontSize: 16 }}>{name}</Text>
    </Pressable>
  );
}

function Time({ name, value, set }: { name: string; value: string; set: (value: string) => void }): ReactNode {
  const { text, border, danger } = useColors();
  return (
    <Row wrap>
      <Words>{name}</Words>
      <TextInput aria-label={name} value={value} onChangeText={set} maxLength={5} keyboardType="numbers-and-punctuation" style={{ minHeight: 44, width: 90, padding: 8, borderWidth: 1, borderRadius: 8, borderColor: isTime(value) ? border : danger, color: text, fontSize: 16 }} />
    </Row>
  );
}

function DigestForm({ choices }: { choices: Choices }): ReactNode {
  const { texts, locale } = useScreens();
  const [draft, setDraft, reset] = useDraft(choices.digest);
  if (!choices.told.preferences.length) return null;
  const { often, day, time } = draft;
  const isTimed = often === "daily" || often === "weekly";
  const kinds: Digest["often"][] = ["now", "hourly", "daily", "weekly"];
  return (
    <Box title={texts.digest}>
      <Words>{texts.digestWhen}</Words>
      {(choices.digest.often === "mixed" ? [...kinds, "mixed" as const] : kinds).map((each) => (
        <Radio key={each} name={texts[each]} on={often === each} choose={() => setDraft({ ...draft, often: each })} />
      ))}
      {often === "weekly" && <Words>{texts.digestDay}</Words>}
      {often === "weekly" && dayNames(locale).map(([each, name]) => <Radio key={each} name={name} on={day === each} choose={() => setDraft({ ...draft, day: each })} />)}
      {isTimed && <Time name={texts.digestTime} value={time} set={(value) => setDraft({ ...draft, time: value })} />}
      <Button main title={texts.save} disabled={often === "mixed" || (isTimed && !isTime(time))} onPress={() => void choices.setDigest(draft).finally(reset)} />
      <Result choices={choices} of="digest" />
    </Box>
  );
}

function QuietForm({ choices }: { choices: Choices }): ReactNode {
  const { texts, locale } = useScreens();
  const { windows, zone } = choices.told.quiet ?? { windows: null, zone: null };
  const truth = readWindows(windows ?? []);
  const [draft, setDraft, reset] = useDraft(truth);
  const isOn = truth.length > 0;
  return (
    <Box title={texts.quiet}>
      <Switch name={texts.quietOn} sentence={texts.quietExplained} on={isOn} save={(on) => choices.setWindows(on ? [USUAL] : []).finally(reset)} />
      {isOn &&
        draft.map((window, place) => (
          <View key={place} style={{ gap: 4 }}>
            <Words is="strong">{window.days ? namesOf(window.days, locale) : texts.quietEveryDay}</Words>
            <Time name={texts.quietFrom} value={window.from} set={(from) => setDraft(draft.map((each, at) => (at === place ? { ...each, from } : each)))} />
            <Time name={texts.quietTo} value={window.to} set={(to) => setDraft(draft.map((each, at) => (at === place ? { ...each, to } : each)))} />
            {draft.length > 1 && <Button title={texts.quietRemove} onPress={() => setDraft(draft.filter((_, at) => at !== place))} />}
          </View>
        ))}
      {isOn && zone !== null && <Words is="small">{fill(texts.quietZone, { zone })}</Words>}
      {isOn && (
        <Row wrap>
          <Button main title={texts.save} disabled={!areTimes(draft)} onPress={() => void choices.setWindows(draft).finally(reset)} />
          <Button title={texts.quietAdd} onPress={() => setDraft([...draft, { ...USUAL, from: "13:00", to: "14:00" }])} />
        </Row>
      )}
      <Result choices={choices} of="quiet" />
    </Box>
  );
}
