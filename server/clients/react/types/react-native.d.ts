// What is used of React Native, as it declares it: to build here without it.

declare module "react-native" {
  import type { ComponentType, ReactNode } from "react";

  type Style = Record<string, unknown> | false | null | undefined | readonly Style[];
  interface ViewProps {
    style?: Style;
    children?: ReactNode;
    role?: "alert" | "button" | "heading" | "link" | "radio" | "radiogroup" | "switch";
    "aria-label"?: string;
    "aria-live"?: "polite" | "assertive";
    "aria-checked"?: boolean;
    "aria-disabled"?: boolean;
    "aria-expanded"?: boolean;
    "aria-modal"?: boolean;
    onAccessibilityEscape?: () => void;
    testID?: string;
  }
  const View: ComponentType<ViewProps>;
  const Text: ComponentType<ViewProps>;
  const ScrollView: ComponentType<ViewProps>;
  const Pressable: ComponentType<ViewProps & { onPress?: () => void; disabled?: boolean; hitSlop?: number }>;
  const Switch: ComponentType<ViewProps & { value: boolean; onValueChange: (value: boolean) => void; disabled?: boolean; trackColor?: { false: string; true: string } }>;
  const TextInput: ComponentType<ViewProps & { value: string; onChangeText: (text: string) => void; maxLength?: number; keyboardType?: "numbers-and-punctuation" }>;
  const Modal: ComponentType<ViewProps & { visible: boolean; onRequestClose: () => void; animationType?: "slide" | "none"; presentationStyle?: "pageSheet" }>;
  const Linking: { openURL(url: string): Promise<unknown> };
  const AccessibilityInfo: { announceForAccessibility(text: string): void };
  function useColorScheme(): "light" | "dark" | null | undefined;
}
