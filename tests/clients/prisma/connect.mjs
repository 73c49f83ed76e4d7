import { PrismaPg } from "@prisma/adapter-pg";
import generated from "./generated/index.js";

/** Connect by the client that Prisma generated. */
export function connect(connectionString) {
  return new generated.PrismaClient({ adapter: new PrismaPg({ connectionString }) });
}
