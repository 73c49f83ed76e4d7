// Drives Expo's own SDK against EXPO_BASE_URL and prints what it saw as one JSON object.
import { Expo } from 'expo-server-sdk';

const told = (error) => ({
  message: error.message, code: error.code, details: error.details, statusCode: error.statusCode,
});
const failing = (promise) => promise.then(() => null, told);
const named = (word) => `ExponentPushToken[node!${word}]`;

const expo = new Expo({ retryMinTimeout: 50, accessToken: process.env.SANDBOX_ACCESS_TOKEN });
const stranger = new Expo({ retryMinTimeout: 50 });

const messages = Array.from({ length: 250 }, (_, number) => ({
  to: `ExponentPushToken[node-${number}]`, title: `Message ${number}`, body: 'A text that is long enough to be packed',
}));
const chunks = expo.chunkPushNotifications(messages);
const tickets = (await Promise.all(chunks.map((chunk) => expo.sendPushNotificationsAsync(chunk)))).flat();

const errors = await expo.sendPushNotificationsAsync([
  { to: named('DeviceNotRegistered'), title: 'a' },
  { to: named('fcm-MismatchSenderId'), title: 'b' },
  { to: [named('MessageRateExceeded'), 'ExponentPushToken[node-0]'], title: 'c' },
]);
const [late] = await expo.sendPushNotificationsAsync([{ to: named('receipt-DeviceNotRegistered'), title: 'd' }]);

const ids = [...tickets.map((ticket) => ticket.id), late.id];
const idChunks = expo.chunkPushNotificationReceiptIds([...ids, ...ids]);
const receipts = await Promise.all(idChunks.map((chunk) => expo.getPushNotificationReceiptsAsync(chunk)));

process.stdout.write(JSON.stringify({
  tokens: ['ExponentPushToken[a!500]', 'ExpoPushToken[a]', tickets[0].id].map((token) => Expo.isExpoPushToken(token)),
  chunks: chunks.map((chunk) => chunk.length),
  tickets,
  errors,
  late,
  idChunks: idChunks.map((chunk) => chunk.length),
  receipts: Object.assign({}, ...receipts),
  retried: await expo.sendPushNotificationsAsync([{ to: named('429*2'), title: 'e' }]),
  givenUp: await failing(expo.sendPushNotificationsAsync([{ to: named('429'), title: 'f' }])),
  mixed: await failing(expo.sendPushNotificationsAsync([
    { to: 'ExponentPushToken[node-0]', title: 'g' }, { to: named('project=@acme/other'), title: 'h' },
  ])),
  tooMany: await failing(expo.sendPushNotificationsAsync(messages)),
  short: await failing(expo.sendPushNotificationsAsync([{ to: named('short'), title: 'i' }, messages[0]])),
  gateway: await failing(expo.sendPushNotificationsAsync([{ to: named('504-delivered'), title: 'j' }])),
  stranger: await failing(stranger.sendPushNotificationsAsync([messages[0]])),
  strangerReceipts: await failing(stranger.getPushNotificationReceiptsAsync(ids.slice(0, 1))),
}));
