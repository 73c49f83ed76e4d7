// Lets Node find fakes where the app has the modules of Expo and React Native.
import { register } from "node:module";

register("./resolver.js", import.meta.url);
