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
