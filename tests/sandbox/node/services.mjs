// Drives firebase-admin, node-apn and web-push against a sandbox and prints what they saw as one JSON object.
import http2 from 'node:http2';
import apn from '@parse/node-apn';
import { initializeApp } from 'firebase-admin/app';
import { getMessaging } from 'firebase-admin/messaging';
import webpush from 'web-push';

const given = JSON.parse(process.env.SANDBOX);

// The address of FCM is fixed in firebase-admin.
const connect = http2.connect;
http2.connect = (url, ...rest) => connect(`${url}`.includes('fcm.googleapis.com') ? given.fcm : url, ...rest);

const told = (sent) => (sent.success
  ? { name: sent.messageId }
  : { code: sent.error.code, message: sent.error.message });

async function fcm() {
  const credential = { getAccessToken: async () => ({ access_token: given.accessToken, expires_in: 3600 }) };
  const messaging = getMessaging(initializeApp({ credential, projectId: given.projectId }));
  const { responses } = await messaging.sendEach(given.fcmTokens.map((token, number) => ({
    token,
    notification: { title: `FCM ${number}`, body: 'b', imageUrl: 'https://example.com/a.png' },
    data: { number: `${number}` },
    android: {
      collapseKey: 'k', priority: 'high', ttl: 3_500,
      notification: { channelId: 'c', notificationCount: 3, visibility: 'public', tag: 't' },
    },
    apns: { headers: { 'apns-priority': '5' }, payload: { aps: { badge: 1, contentAvailable: true } } },
    webpush: { headers: { Urgency: 'high' }, notification: { title: 'w' } },
  })));
  return responses.map(told);
}

async function apns(address, tokens) {
  const { hostname, port } = new URL(address);
  const provider = new apn.Provider({ token: given.apnsKey, production: true, address: hostname, port: Number(port) });
  const seen = [];
  const note = () => new apn.Notification({
    topic: given.topic, pushType: 'alert', priority: 10, expiry: Math.floor(Date.now() / 1000) + 3600, collapseId: 'c',
    aps: { alert: { title: 'APNs', body: 'b' } }, payload: { order: 17 },
  });
  for (const token of tokens) {
    const { sent, failed } = await provider.send(note(), token);
    seen.push(sent.length ? { sent: sent[0].device } : { status: failed[0].status, response: failed[0].response });
  }
  const many = await provider.send(note(), given.manyApnsTokens);
  await provider.shutdown();
  return { seen, many: many.sent.length };
}

async function web() {
  const seen = [];
  for (const subscription of given.subscriptions) {
    const options = { vapidDetails: given.vapid, TTL: 60, topic: 'news', urgency: 'high' };
    const payload = JSON.stringify({ title: 'Web Push', data: { order: 17 } });
    seen.push(await webpush.sendNotification(JSON.parse(subscription), payload, options).then(
      ({ statusCode, headers }) => ({ statusCode, location: headers.location }),
      ({ statusCode, body }) => ({ statusCode, body }),
    ));
  }
  return seen;
}

process.stdout.write(JSON.stringify({
  fcm: await fcm(), apns: await apns(given.apns, given.apnsTokens), webpush: await web(),
}));
process.exit(0);
