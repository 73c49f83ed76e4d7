import { createContext, type ReactNode, useContext } from "react";
import { Pressable, Text, useColorScheme, View } from "react-native";
import { useScreens } from "../screens.js";

/** The names are those of the CSS variables. */
export interface Colors {
  text: string;
  muted: string;
  background: string;
  raised: string;
  border: string;
  accent: string;
  onAccent: string;
  danger: string;
}

const LIGHT: Colors = { text: "#1b1f24", muted: "#57606a", background: "#ffffff", raised: "#f3f5f8", border: "#8a939e", accent: "#0b5cc4", onAccent: "#ffffff", danger: "#b3261e" };
const DARK: Colors = { text: "#e8ebef", muted: "#a8b1bc", background: "#14181d", raised: "#20262d", border: "#76818d", accent: "#7ab4ff", onAccent: "#0b1521", danger: "#ff9d94" };

export const OwnColors = createContext<Partial<Colors>>({});

export function useColors(): Colors {
  const { theme } = useScreens();
  const system = useColorScheme();
  return { ...((theme ?? system) === "dark" ? DARK : LIGHT), ...useContext(OwnColors) };
}

interface WordsProps {
  children: ReactNode;
  is?: "title" | "strong" | "small" | "alert" | "state";
}

/** A text; screen readers say a state or an alert when it changes. */
export function Words({ children, is }: WordsProps): ReactNode {
  const colors = useColors();
  const live = is === "alert" ? ({ role: "alert", "aria-live": "assertive" } as const) : is === "state" ? ({ "aria-live": "polite" } as const) : {};
  const header = is === "title" ? ({ role: "heading" } as const) : {};
  const color = is === "alert" ? colors.danger : is === "small" || is === "state" ? colors.muted : colors.text;
  return (
    <Text {...live} {...header} style={{ color, flexShrink: 1, fontSize: is === "title" ? 20 : is === "small" ? 14 : 16, fontWeight: is === "title" || is === "strong" ? "600" : "400" }}>
      {children}
    </Text>
  );
}

interface ButtonProps {
  title: string;
  onPress: () => void;
  /** What it is about, for screen readers. */
  about?: string;
  disabled?: boolean;
  main?: boolean;
}

export function Button({ title, onPress, about, disabled = false, main = false }: ButtonProps): ReactNode {
  const colors = useColors();
  const place = { minHeight: 44, justifyContent: "center", alignSelf: "flex-start", paddingHorizontal: 12, borderWidth: 1, borderRadius: 8, borderColor: main ? colors.accent : colors.border };
  return (
    <Pressable role="button" aria-label={about ? `${title}: ${about}` : title} aria-disabled={disabled} disabled={disabled} onPress={onPress} style={{ ...place, backgroundColor: main ? colors.accent : colors.background }}>
      <Text style={{ color: main ? colors.onAccent : disabled ? colors.muted : colors.text, fontSize: 16 }}>{title}</Text>
    </Pressable>
  );
}

export function Row({ children, wrap = false }: { children: ReactNode; wrap?: boolean }): ReactNode {
  return <View style={{ flexDirection: "row", alignItems: "center", justifyContent: wrap ? "flex-start" : "space-between", gap: 8, flexWrap: wrap ? "wrap" : "nowrap" }}>{children}</View>;
}

export function Box({ children, title }: { children: ReactNode; title: string }): ReactNode {
  const { border } = useColors();
  return (
    <View style={{ gap: 8, padding: 12, borderWidth: 1, borderRadius: 8, borderColor: border }}>
      <Words is="strong">{title}</Words>
      {children}
    </View>
  );
}
