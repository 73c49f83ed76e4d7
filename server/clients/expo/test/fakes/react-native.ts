import { phone } from "./phone.js";

export const AppState = {
  currentState: "active",
  addEventListener: (_kind: "change", listener: (state: string) => void) => phone.listen("state", listener),
};
export const Platform = {
  get OS() {
    return phone.os;
  },
};
export const [View, Text, ScrollView, Pressable, Switch, TextInput, Modal] = ["View", "Text", "ScrollView", "Pressable", "Switch", "TextInput", "Modal"];
export const Linking = { openURL: async (_url: string): Promise<void> => undefined };
export const useColorScheme = (): "light" => "light";
