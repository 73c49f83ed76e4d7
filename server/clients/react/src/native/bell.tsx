import { type ReactNode, useState } from "react";
import { Modal, Pressable, ScrollView, Text, View } from "react-native";
import type { BellProps } from "../bell.js";
import { useScreens, useScreensInbox } from "../screens.js";
import { fill } from "../texts.js";
import { Inbox } from "./inbox.js";
import { Button, useColors } from "./look.js";

/** A button with the number of unread items, which opens the inbox above the screen. `align` means nothing on a phone. */
export function Bell(_: BellProps): ReactNode {
  const { texts } = useScreens();
  const { unread } = useScreensInbox();
  const colors = useColors();
  const [open, setOpen] = useState(false);
  const close = (): void => setOpen(false);
  const label = unread === 0 ? texts.noneUnread : unread === 1 ? texts.oneUnread : fill(texts.manyUnread, { count: unread });
  return (
    <>
      <Pressable role="button" aria-label={label} aria-expanded={open} onPress={() => setOpen(true)} style={{ minWidth: 44, minHeight: 44, alignItems: "center", justifyContent: "center" }}>
        <View style={{ alignItems: "center" }}>
          <View style={{ width: 16, height: 14, borderWidth: 2, borderBottomWidth: 0, borderTopLeftRadius: 8, borderTopRightRadius: 8, borderColor: colors.text }} />
          <View style={{ width: 22, height: 2, borderRadius: 1, backgroundColor: colors.text }} />
          <View style={{ width: 6, height: 3, marginTop: 1, borderBottomLeftRadius: 3, borderBottomRightRadius: 3, backgroundColor: colors.text }} />
        </View>
        {unread !== 0 && (
          <View style={{ position: "absolute", top: 0, right: 0, minWidth: 20, paddingHorizontal: 5, borderRadius: 10, backgroundColor: colors.accent }}>
            <Text style={{ color: colors.onAccent, fontSize: 12, textAlign: "center" }}>{String(unread)}</Text>
          </View>
        )}
      </Pressable>
      <Modal visible={open} onRequestClose={close} animationType="slide" presentationStyle="pageSheet">
        <View aria-modal onAccessibilityEscape={close} style={{ flex: 1, padding: 12, backgroundColor: colors.background }}>
          <Button title={texts.close} onPress={close} />
          <ScrollView>
            <Inbox />
          </ScrollView>
        </View>
      </Modal>
    </>
  );
}
