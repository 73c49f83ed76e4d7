// Serves web-push-testing, a push service that others wrote, over TLS, and prints its port; it ends with its standard input.
const {readFileSync} = require('node:fs');
const {createServer} = require('node:https');
const {createRequire} = require('node:module');

const installed = createRequire(`${process.cwd()}/`); // the packages of the folder it is started in
const {PushApiModel} = installed('web-push-testing/src/PushApiModel.js');
const WebPushTestingServer = installed('web-push-testing/src/server.js');

const served = new WebPushTestingServer(new PushApiModel(), 443);
served.setRequestHandlers();
const pem = readFileSync(process.argv[2]);
const server = createServer({key: pem, cert: pem}, served._app);
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.on('end', () => process.exit(0)).resume();
