import type { InboxItemOut } from "@relevo/client";
import { type ReactNode, useState } from "react";
import { Linking, Pressable, Text, View } from "react-native";
import { linkOf } from "../links.js";
import { phaseOf, timeOf, useScreens, useScreensInbox } from "../screens.js";
import { Button, Row, useColors, Words } from "./look.js";

type Mark = (work: () => Promise<void>) => void;

/** What came for a person, newest first. Put it into a ScrollView of your screen. */
export function Inbox(): ReactNode {
  const { texts, status, push } = useScreens();
  const inbox = useScreensInbox();
  const colors = useColors();
  const [notSaved, setNotSaved] = useState(false);
  const { items, error, loading, hasMore, unread } = inbox;
  const phase = phaseOf(status, inbox, items.length > 0);
  const failed = phase === "failed" || (phase === "ready" && error !== null);
  const mark: Mark = (work) => {
    setNotSaved(false);
    work().catch(() => setNotSaved(true));
  };
  const retry = (): void => {
    if (status !== "registered") void push.register();
    else void (items.length ? inbox.loadMore() : inbox.refresh());
  };
  return (
    <View style={{ gap: 12, padding: 12, backgroundColor: colors.background }}>
      <Row wrap>
        <Words is="title">{texts.notifications}</Words>
        {items.length > 0 && <Button title={texts.markAllRead} disabled={unread === 0} onPress={() => mark(inbox.markAllRead)} />}
      </Row>
      {phase === "loading" && <Words is="state">{texts.loading}</Words>}
      {phase === "logged-out" && <Words is="state">{texts.loggedOut}</Words>}
      {phase === "ready" && !failed && items.length === 0 && <Words is="state">{texts.empty}</Words>}
      {notSaved && <Words is="alert">{texts.notSaved}</Words>}
      {failed && <Words is="alert">{texts.failed}</Words>}
      {phase === "ready" && items.map((item) => <Item key={item.event_id} item={item} inbox={inbox} mark={mark} />)}
      {failed && <Button title={texts.retry} onPress={retry} />}
      {phase === "ready" && hasMore && !error && <Button title={texts.loadMore} disabled={loading} onPress={() => void inbox.loadMore()} />}
    </View>
  );
}

function Item({ item, inbox, mark }: { item: InboxItemOut; inbox: ReturnType<typeof useScreensInbox>; mark: Mark }): ReactNode {
  const { texts, locale, schemes, onOpen } = useScreens();
  const colors = useColors();
  const link = linkOf(item, schemes);
  const isUnread = item.read_at === null;
  const opens = onOpen !== undefined || (link !== null && /^[a-z][a-z0-9+.-]*:/i.test(link)); // a phone has no page that a relative link could belong to
  const open = (): void => {
    if (isUnread) mark(() => inbox.markRead(item.event_id));
    if (onOpen) onOpen(item, link);
    else if (link) void Linking.openURL(link).catch(() => undefined);
  };
  const title = <Text style={{ color: opens ? colors.accent : colors.text, fontSize: 16, fontWeight: isUnread ? "600" : "400" }}>{item.title}</Text>;
  return (
    <View style={{ gap: 4, padding: 12, borderWidth: 1, borderRadius: 8, borderColor: isUnread ? colors.accent : colors.border, backgroundColor: isUnread ? colors.raised : colors.background }}>
      {isUnread && <Words is="small">{texts.unread}</Words>}
      {opens ? (
        <Pressable role={link ? "link" : "button"} hitSlop={8} onPress={open}>
          {title}
        </Pressable>
      ) : (
        title
      )}
      {item.body !== "" && <Words>{item.body}</Words>}
      <Words is="small">{timeOf(item.at, locale)}</Words>
      <Row wrap>
        <Button title={isUnread ? texts.markRead : texts.markUnread} about={item.title} onPress={() => mark(() => (isUnread ? inbox.markRead : inbox.markUnread)(item.event_id))} />
        <Button title={texts.archive} about={item.title} onPress={() => mark(() => inbox.archive(item.event_id))} />
      </Row>
    </View>
  );
}
