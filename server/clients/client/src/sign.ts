/** What the app's server vouches for: the phone exactly as it will register. What the phone does not send is left out. */
export interface SignedPhone {
  installationId: string;
  project?: string;
  owner?: string;
  provider?: string;
  token?: string;
}

const LIFETIME_S = 600;

/**
 * Sign for one registration, on the app's server: good once, for ten minutes.
 *
 * `key` is the key's name, `secret` its base64, as in HTTP_SIGNING_KEYS_FILE. Sign only for the user who is logged in.
 */
export async function signInstallation(key: string, secret: string, phone: SignedPhone): Promise<string> {
  if (!/^[A-Za-z0-9_-]{1,50}$/.test(key)) throw new TypeError("key must be 1 to 50 letters, digits, dashes or underscores");
  const issued = Math.floor(Date.now() / 1000);
  const expires = issued + LIFETIME_S;
  const nonce = hex(crypto.getRandomValues(new Uint8Array(16)));
  const lines = [
    "v2",
    phone.project ?? "default",
    phone.installationId.toLowerCase(),
    phone.owner ?? "",
    phone.provider ?? "",
    phone.token === undefined ? "" : hex(await crypto.subtle.digest("SHA-256", bytes(phone.token))),
    String(issued),
    String(expires),
    nonce,
  ];
  if (lines.some((line) => /[\u0000-\u001f\u007f]/.test(line))) throw new TypeError("project, installation, owner, provider and token must be text without control characters");
  const raw = Uint8Array.from(atob(secret), (letter) => letter.charCodeAt(0));
  const hmac = { name: "HMAC", hash: "SHA-256" };
  const imported = await crypto.subtle.importKey("raw", raw, hmac, false, ["sign"]);
  const digest = await crypto.subtle.sign("HMAC", imported, bytes(lines.join("\n")));
  return ["v2", key, issued, expires, nonce, hex(digest)].join(".");
}

function bytes(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text);
}

function hex(raw: ArrayBuffer | Uint8Array): string {
  return [...new Uint8Array(raw)].map((each) => each.toString(16).padStart(2, "0")).join("");
}
