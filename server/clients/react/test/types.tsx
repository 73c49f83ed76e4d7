// What the types allow and refuse: compiled, never run.
import { type BellProps, Inbox, type PreferencesProps, RelevoScreens, type RelevoScreensProps, type ScreensPush, textsFor } from "@relevo/react";
import * as native from "@relevo/react/native";
import type { PushSession } from "@relevo/expo";
import type { RelevoPush } from "@relevo/web";

declare const web: RelevoPush;
declare const phone: PushSession;
const pushes: ScreensPush[] = [web, phone];
const props: RelevoScreensProps = { push: web, locale: "es-CL", texts: { empty: "Nada" }, theme: "dark", schemes: ["myshop"], inbox: { status: "unread", pageSize: 10 } };
const same: native.RelevoScreensProps = { ...props, push: phone, colors: { accent: "#7a1fa2" } };
const sections: PreferencesProps & native.PreferencesProps = { sections: ["quiet"], topics: [{ topic: "chess", name: "Chess" }] };
const sides: (BellProps & native.BellProps)[] = [{}, { align: "start" }];
export const rendered = [<RelevoScreens {...props} key="a"><Inbox /></RelevoScreens>, <native.RelevoScreens {...same} key="b"><native.Inbox /><native.Preferences {...sections} /></native.RelevoScreens>];
export const others = [pushes, sides, textsFor("es").empty];

// @ts-expect-error a push is needed
export const without: RelevoScreensProps = { locale: "es" };
// @ts-expect-error no such theme
export const theme: RelevoScreensProps["theme"] = "blue";
// @ts-expect-error no such text
export const text: RelevoScreensProps = { push: web, texts: { unknown: "x" } };
// @ts-expect-error the language is that of the screens
export const language: RelevoScreensProps = { push: web, inbox: { locale: "es" } };
