// A fence before an HTTP service: a stale Holdfast-Token does not reach the handler.
import { createServer } from 'node:http';
import express from 'express';
import { Holdfast } from 'holdfast';
import { fencedFetch, httpFence } from 'holdfast/fence';

const balances = new Map([['/accounts/1', 100]]);
const fences = httpFence({ resource: (request) => request.path });
const app = express();
app.use(fences.middleware());
app.use(express.text());
app.get('/accounts/:id', (request, response) => response.send(`${balances.get(request.path)}`));
app.put('/accounts/:id', (request, response) =>
  response.send(`${balances.set(request.path, Number(request.body)).size}`),
);
const server = createServer(app);
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const url = `http://127.0.0.1:${server.address().port}/accounts/1`;

async function deposit(lease, amount) {
  const http = fencedFetch(lease); // shows the token with every request, with the first GET already
  const balance = Number(await (await http(url)).text());
  await http(url, { method: 'PUT', body: `${balance + amount}` });
}

// Ada stalls and loses the lock; Ben comes next. Then she wakes up, does not look at ada.held, and goes on.
const locks = new Holdfast('memory:');
const lock = locks.mutex('account:1');
const ada = await lock.acquire({ maxHold: '20ms' });
const ben = await lock.acquire();
await deposit(ben, 10);
await deposit(ada, 5).catch((error) => console.log(`Ada is refused: ${error.code}`));

console.log(`balance: ${balances.get('/accounts/1')}`);
await locks.close();
server.close();
server.closeAllConnections();

// Output:
// Ada is refused: HOLDFAST_STALE_TOKEN
// balance: 110
