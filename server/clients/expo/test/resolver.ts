const FAKES = new Set(["expo-application", "expo-constants", "expo-notifications", "expo-secure-store", "react-native"]);

type Next = (specifier: string, context: unknown) => Promise<{ url: string }>;

export async function resolve(specifier: string, context: unknown, next: Next): Promise<{ url: string; shortCircuit?: boolean }> {
  if (!FAKES.has(specifier)) return next(specifier, context);
  return { url: new URL(`./fakes/${specifier}.js`, import.meta.url).href, shortCircuit: true };
}
